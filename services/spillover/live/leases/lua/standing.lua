-- Who intends to serve what, as scripts see it that decide by it. A won partition is the winner's
-- already. Arguments used: partitions (3), normal lease in ms (11).

local partitions = tonumber(ARGV[3])

-- By living member: how many of its partitions came within one normal lease time.
local lately, nodes = {}, 0

-- Partitions that a member may take in one normal lease time: policy/leases.py, move_budget.
local function budget()
  return math.max(1, math.ceil(math.ceil(partitions / nodes) / 4))
end

-- Call `add(member, field)` for each partition that a living member intends to serve.
local function each_intended(begin, add)
  local members = redis.call('HGETALL', MEMBERS)
  for i = 1, #members, 2 do
    if is_name(members[i]) and living_member(members[i + 1]) then
      lately[members[i]], nodes = 0, nodes + 1
      begin(members[i])
    end
  end
  local recent_ms = now_ms - tonumber(ARGV[11])
  local is_won = {}
  local grabs = redis.call('HGETALL', GRAB)
  for i = 1, #grabs, 2 do
    local winner, since = live_winner(grabs[i + 1])
    if winner and is_partition(grabs[i], partitions) then
      is_won[grabs[i]] = true
      if lately[winner] then
        add(winner, grabs[i])
        if since > recent_ms then
          lately[winner] = lately[winner] + 1
        end
      end
    end
  end
  local allocations = redis.call('HGETALL', ALLOCATION)
  for i = 1, #allocations, 2 do
    if is_partition(allocations[i], partitions) and not is_won[allocations[i]] then
      -- As read_allocation, is_live and over_ms, without a table for each of a thousand.
      local owner, epoch, since, lease_to, stop_to =
        string.match(allocations[i + 1], '^([^|]+)|(%d+)|(%d+)|(%d+)|(%d+)$')
      if owner and lately[owner] and tonumber(lease_to) > now_ms
        and (stop_to == '0' or tonumber(stop_to) > now_ms or tonumber(stop_to) == 0)
        and #epoch <= DIGITS_MAX and #since <= DIGITS_MAX and #lease_to <= DIGITS_MAX
        and #stop_to <= DIGITS_MAX then
        add(owner, allocations[i])
        if tonumber(since) > recent_ms then
          lately[owner] = lately[owner] + 1
        end
      end
    end
  end
end
