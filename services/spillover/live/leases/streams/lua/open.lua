-- What number of partitions a group's streams have: whoever comes first says it; a lease group of
-- the same name has the last word. Keys: facts of the streams, facts of the lease group.
-- Arguments: partitions. Answer: what they have.
local leased = redis.call('HGET', KEYS[2], 'partitions')
if leased then
  return leased
end
redis.call('HSETNX', KEYS[1], 'partitions', ARGV[1])
return redis.call('HGET', KEYS[1], 'partitions')
