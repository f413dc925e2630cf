-- The holder has stopped: the partition is free, whatever the clock will say (a promoted replica's
-- may be behind). Arguments: partition, node, epoch.
local own = own_allocation(ARGV[1], ARGV[2], tonumber(ARGV[3]))
if not own then
  return 0
end
own.lease_to, own.stop_to = 0, 0
redis.call('HSET', ALLOCATION, ARGV[1], allocation_text(own))
return 1
