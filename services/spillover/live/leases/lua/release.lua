-- The holder has stopped: the partition is free, whatever the clock will say (a promoted replica's
-- may be behind). Its own mark, if it won the partition just before, keeps nobody away any more.
-- Arguments: partition, node, epoch.
local own = own_allocation(ARGV[1], ARGV[2], tonumber(ARGV[3]))
if not own then
  return 0
end
own.lease_to, own.stop_to = 0, 0
redis.call('HSET', ALLOCATION, ARGV[1], allocation_text(own))
local winner = string.match(redis.call('HGET', GRAB, ARGV[1]) or '', '^([^|]+)|')
if winner == ARGV[2] then
  redis.call('HDEL', GRAB, ARGV[1])
end
return 1
