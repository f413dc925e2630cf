-- Sign of life of a member and of all that it holds.
-- Arguments: the six of enter_era, node, incarnation, maximum lease in ms, then partition and
-- epoch in turn. Answer: {era, 1 if another process is the member now, flags}, one flag for each
-- pair: 0 lost, 1 kept, 2 kept and won by another node.
local era, refused = enter_era()
if not era then
  return refused
end
local node, incarnation, max_lease_ms = ARGV[7], ARGV[8], tonumber(ARGV[9])
local count = (#ARGV - 9) / 2
local other, alive_ms = living_member(redis.call('HGET', MEMBERS, node))
if other and other ~= incarnation then
  return { era, 1, string.rep('0', count) }
end
-- Longer than it could be by what this very process wrote: the clock was set back.
if other and alive_ms > max_lease_ms then
  forget_the_future(max_lease_ms)
end
set_member(node, incarnation, max_lease_ms)

local new_to_caller = ARGV[1] ~= '' and ARGV[1] ~= era

-- What is stored, to be renewed, or what the store forgot: an epoch is given to one holder only,
-- so that a higher one than is stored comes from data that were lost. A lease that ran out is not
-- renewed, unless the store went back to older data.
-- Second value: whether it was forgotten; marks of winners from before that are void.
local function kept(stored, epoch)
  if not stored or epoch > stored.epoch then
    local since = math.min(epoch, now_ms)
    return { node = node, epoch = epoch, since = since, lease_to = 0, stop_to = 0 }, true
  end
  if stored.node ~= node or stored.epoch ~= epoch then
    return nil
  end
  local stopped = stored.lease_to == 0 or (stored.stop_to > 0 and stored.stop_to <= now_ms)
  if stopped or (stored.lease_to <= now_ms and not new_to_caller) then
    return nil
  end
  return stored
end

-- Lua passes a few thousand arguments at most.
local SLICE = 1000
local flags = {}
for first = 0, count - 1, SLICE do
  local partitions = {}
  for i = first, math.min(first + SLICE, count) - 1 do
    partitions[#partitions + 1] = ARGV[10 + 2 * i]
  end
  local allocations = redis.call('HMGET', ALLOCATION, unpack(partitions))
  local grabs = redis.call('HMGET', GRAB, unpack(partitions))
  local changes = {}
  for i, partition in ipairs(partitions) do
    local epoch = tonumber(ARGV[9 + 2 * (first + i)])
    local own, forgotten = kept(read_allocation(allocations[i]), epoch)
    local flag = '0'
    if own then
      own.lease_to = now_ms + max_lease_ms
      changes[#changes + 1] = partition
      changes[#changes + 1] = allocation_text(own)
      local winner, since = live_winner(grabs[i])
      if winner and forgotten and since < epoch then
        winner = nil
      end
      -- Step 6: marks that are over are removed, so that surveys need not read them.
      if grabs[i] and not winner then
        redis.call('HDEL', GRAB, partition)
      end
      flag = winner and winner ~= node and '2' or '1'
    end
    flags[#flags + 1] = flag
  end
  if #changes > 0 then
    redis.call('HSET', ALLOCATION, unpack(changes))
  end
end
return { era, 0, table.concat(flags) }
