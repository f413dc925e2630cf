-- A member goes, if it is still the one of that id. Arguments: node, incarnation.
local value = redis.call('HGET', MEMBERS, ARGV[1])
if value and string.match(value, '|([^|]*)$') == ARGV[2] then
  return redis.call('HDEL', MEMBERS, ARGV[1])
end
return 0
