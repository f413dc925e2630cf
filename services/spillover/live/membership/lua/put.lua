-- Keeps a configuration in place of the one with the stamp that is given ('' for none), and tells
-- who listens. 1 if so, 0 if there is another one.
local stamp = redis.call('HGET', KEYS[1], 'stamp') or ''
if stamp ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'stamp', ARGV[2], 'body', ARGV[3])
redis.call('PUBLISH', KEYS[1], ARGV[2])
return 1
