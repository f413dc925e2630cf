-- The holder has stopped: the partition is free. Arguments: partition, node, epoch.
local own = own_allocation(ARGV[1], ARGV[2], tonumber(ARGV[3]))
if not own then
  return 0
end
own.lease_to = now_ms
own.stop_to = now_ms
redis.call('HSET', ALLOCATION, ARGV[1], allocation_text(own))
return 1
