-- The holder begins to stop; from now on it has the maximum shutdown time.
-- Arguments: partition, node, epoch, maximum shutdown time in ms.
local own = own_allocation(ARGV[1], ARGV[2], tonumber(ARGV[3]))
if not own then
  return 0
end
local stop_to = now_ms + tonumber(ARGV[4])
if own.stop_to == 0 or stop_to < own.stop_to then
  own.stop_to = stop_to
  redis.call('HSET', ALLOCATION, ARGV[1], allocation_text(own))
end
return 1
