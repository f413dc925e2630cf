-- Win the partition, if the counts allow it: the guarded rule of policy/leasing.py.
-- Arguments: the five of enter_era, partition, node, for how long it was seen free, the limit of
-- the mark, normal lease, minimum residency, all in ms. Answer: {1 or 0, era}.
local era, grace_to_ms = enter_era(ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]))
if not era then
  return grace_to_ms
end
local partitions, partition, node = tonumber(ARGV[3]), ARGV[6], ARGV[7]
local free_for_ms, limit_ms = tonumber(ARGV[8]), tonumber(ARGV[9])
local normal_lease_ms, min_residency_ms = tonumber(ARGV[10]), tonumber(ARGV[11])

if live_winner(redis.call('HGET', GRAB, partition)) or grace_to_ms > now_ms
  or not living_member(redis.call('HGET', MEMBERS, node)) then
  return { 0, era }
end

-- Counts by intended owner among living members: a won partition counts for the winner already.
local held, lately, nodes = {}, {}, 0
local function count_all()
  local members = redis.call('HGETALL', MEMBERS)
  for i = 1, #members, 2 do
    if living_member(members[i + 1]) then
      held[members[i]], lately[members[i]], nodes = 0, 0, nodes + 1
    end
  end
  local recent_ms = now_ms - normal_lease_ms
  local function count(owner, since)
    if held[owner] then
      held[owner] = held[owner] + 1
      if since > recent_ms then
        lately[owner] = lately[owner] + 1
      end
    end
  end
  local is_won = {}
  local grabs = redis.call('HGETALL', GRAB)
  for i = 1, #grabs, 2 do
    local winner, since = live_winner(grabs[i + 1])
    local number = tonumber(grabs[i])
    if winner and number and number < partitions then
      is_won[grabs[i]] = true
      count(winner, since)
    end
  end
  local allocations = redis.call('HGETALL', ALLOCATION)
  for i = 1, #allocations, 2 do
    local number = tonumber(allocations[i])
    if number and number < partitions and not is_won[allocations[i]] then
      -- As read_allocation, is_live and over_ms, without a table for each of a thousand.
      local owner, since, lease_to, stop_to =
        string.match(allocations[i + 1], '^([^|]+)|%d+|(%d+)|(%d+)|(%d+)$')
      if owner and held[owner] and tonumber(lease_to) > now_ms
        and (stop_to == '0' or tonumber(stop_to) > now_ms) then
        count(owner, tonumber(since))
      end
    end
  end
end

local function is_allowed()
  local holder = read_allocation(redis.call('HGET', ALLOCATION, partition))
  local is_free = not is_live(holder)
  if is_free and free_for_ms >= normal_lease_ms then
    return true
  end
  if not is_free and (holder.node == node or now_ms - holder.since < min_residency_ms) then
    return false
  end
  count_all()
  local floor, over, above = math.floor(partitions / nodes), partitions % nodes, 0
  for _, count in pairs(held) do
    if count > floor then
      above = above + 1
    end
  end
  local own = held[node]
  local may_receive = own < floor or (own == floor and above < over)
  if is_free or not may_receive then
    return may_receive
  end
  local other = held[holder.node] or 0
  local may_give = other > floor + 1 or (other == floor + 1 and above > over)
  local budget = math.max(1, math.ceil(math.ceil(partitions / nodes) / 4))
  return other - own >= 2 and may_give and lately[node] < budget
end

if not is_allowed() then
  return { 0, era }
end
redis.call('HSET', GRAB, partition, node .. '|' .. text(now_ms) .. '|' .. text(now_ms + limit_ms))
return { 1, era }
