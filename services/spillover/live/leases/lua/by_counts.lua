-- Each partition counts for one: may_receive, may_give and may_grab_held of policy/leases.py.

local held, floor, above = {}, 0, 0

local function count_all()
  each_intended(
    function(member) held[member] = 0 end,
    function(member) held[member] = held[member] + 1 end
  )
  floor = math.floor(partitions / nodes)
  for _, count in pairs(held) do
    if count > floor then
      above = above + 1
    end
  end
end

local function may_receive(node)
  return held[node] < floor or (held[node] == floor and above < partitions % nodes)
end

local function may_take_free(_, node)
  count_all()
  return may_receive(node)
end

local function may_take_held(_, node, holder)
  count_all()
  local other = held[holder] or 0
  local may_give = other > floor + 1 or (other == floor + 1 and above > partitions % nodes)
  return other - held[node] >= 2 and may_give and may_receive(node) and lately[node] < budget()
end
