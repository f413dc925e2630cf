-- Win the partition, if that evens something out: the guarded rule of policy/leases.py, by counts
-- or by loads, whichever of by_counts.lua and by_loads.lua stands before this.
-- Arguments: the six of enter_era, partition, node, for how long it was seen free, the limit of the
-- mark, normal lease, minimum residency, when a load is stale, all in ms. Answer: {1 or 0, era}.
local era, grace_to_ms = enter_era()
if not era then
  return grace_to_ms
end
local partition, node = ARGV[7], ARGV[8]
local free_for_ms, limit_ms = tonumber(ARGV[9]), tonumber(ARGV[10])
local normal_lease_ms, min_residency_ms = tonumber(ARGV[11]), tonumber(ARGV[12])

if live_winner(redis.call('HGET', GRAB, partition)) or grace_to_ms > now_ms
  or not living_member(redis.call('HGET', MEMBERS, node)) then
  return { 0, era }
end

local function is_allowed()
  local holder = read_allocation(redis.call('HGET', ALLOCATION, partition))
  if not is_live(holder) then
    return free_for_ms >= normal_lease_ms or may_take_free(partition, node)
  end
  if holder.node == node or now_ms - holder.since < min_residency_ms then
    return false
  end
  return may_take_held(partition, node, holder.node)
end

if not is_allowed() then
  return { 0, era }
end
redis.call('HSET', GRAB, partition, node .. '|' .. text(now_ms) .. '|' .. text(now_ms + limit_ms))
return { 1, era }
