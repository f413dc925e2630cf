-- The winner takes over what is free, with the next epoch.
-- Arguments: partition, node, maximum lease, minimum grab time, both in ms.
-- Answer: {epoch as text, or empty; in how many ms the partition is free at the latest}.
local partition, node = ARGV[1], ARGV[2]
local winner, won_since = live_winner(redis.call('HGET', GRAB, partition))
if winner ~= node then
  return { '', 0 }
end
local stored = read_allocation(redis.call('HGET', ALLOCATION, partition))
if is_live(stored) then
  return { '', stored.node == node and 0 or over_ms(stored) - now_ms }
end
local epoch = math.max(stored and stored.epoch + 1 or 1, now_ms)
-- Nobody could read it: the one before is no epoch that was ever given.
if not are_whole(text(epoch)) then
  epoch = now_ms
end
local lease_to = now_ms + tonumber(ARGV[3])
redis.call('HSET', ALLOCATION, partition, allocation_text({
  node = node, epoch = epoch, since = now_ms, lease_to = lease_to, stop_to = 0,
}))
local mark = node .. '|' .. text(won_since) .. '|' .. text(now_ms + tonumber(ARGV[4]))
redis.call('HSET', GRAB, partition, mark)
return { text(epoch), 0 }
