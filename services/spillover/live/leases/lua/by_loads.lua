-- Each partition counts for its load: may_take_load and may_shift_load of policy/leases.py, on what
-- core/leases/records.py, load_standing_of, adds up. Loads are whole thousandths, so that sums are the
-- same in both. Arguments used: when a load is stale, in ms (13).

local LOADS = KEYS[5]
local LOAD_UNIT, BAND, DAMPING = 1000, 0.1, 0.7

local held, known, usual, mean, band = {}, {}, LOAD_UNIT, 0, 0

local function load_of(field)
  return known[field] or usual
end

-- Of which those are `count` that are known, `total` in all.
local function fair_load(total, count)
  local unknown, left, most = partitions - count, nodes, math.huge
  total = total + unknown * usual
  while true do
    local fair, filled, filling = total / left, 0, 0
    for _, load in pairs(known) do
      if fair < load and load <= most then
        filled, filling = filled + load, filling + 1
      end
    end
    if fair < usual and usual <= most then
      filled, filling = filled + unknown * usual, filling + unknown
    end
    if filling == 0 then
      return fair
    end
    total, left, most = total - filled, left - filling, fair
  end
end

local function add_all()
  local stored = redis.call('HGETALL', LOADS)
  local count, total = 0, 0
  local stale_ms = now_ms - tonumber(ARGV[13])
  for i = 1, #stored, 2 do
    local amount, at = string.match(stored[i + 1], '^(%d+)|(%d+)$')
    if amount and #amount <= DIGITS_MAX and #at <= DIGITS_MAX
      and is_partition(stored[i], partitions) and tonumber(at) > stale_ms then
      known[stored[i]] = tonumber(amount)
      count, total = count + 1, total + tonumber(amount)
    end
  end
  if count > 0 then
    usual = math.floor(total / count)
  end
  each_intended(
    function(member) held[member] = 0 end,
    function(member, field) held[member] = held[member] + load_of(field) end
  )
  mean = fair_load(total, count)
  band = math.max(BAND * mean, LOAD_UNIT / 2)
end

local function has_least(node)
  for _, load in pairs(held) do
    if load < held[node] then
      return false
    end
  end
  return true
end

local function has_room(partition, node)
  return held[node] + load_of(partition) <= mean + band or has_least(node)
end

local function may_take_free(partition, node)
  add_all()
  return has_room(partition, node)
end

local function may_take_held(partition, node, holder)
  add_all()
  local load, giver = load_of(partition), held[holder] or 0
  return lately[node] < budget()
    and load > 0 and giver > mean + band and has_room(partition, node)
    and load <= DAMPING * (giver - held[node])
end
