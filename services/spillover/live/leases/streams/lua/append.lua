-- A batch of records, each to its partition; a batch that was appended before is not appended again.
-- Keys: the number of the writer's last batch, then the streams. Arguments: number of this batch,
-- for how long it is remembered in s, length to which streams are trimmed (0: they are not), then
-- for each record: index of its stream, its value, 1 and its key, or 0.
-- Answer: how many were appended.
local number = tonumber(ARGV[1])
if number <= (tonumber(redis.call('GET', KEYS[1])) or 0) then
  return 0
end
for i = 2, #KEYS do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= 'stream' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is a ' .. kind)
  end
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
local at, count = 4, 0
while at <= #ARGV do
  local stream, value, has_key = KEYS[1 + tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2] == '1'
  if has_key then
    redis.call('XADD', stream, '*', 'key', ARGV[at + 3], 'value', value)
  else
    redis.call('XADD', stream, '*', 'value', value)
  end
  at, count = at + (has_key and 4 or 3), count + 1
end
if ARGV[3] ~= '0' then
  for i = 2, #KEYS do
    redis.call('XTRIM', KEYS[i], 'MAXLEN', '~', ARGV[3])
  end
end
return count
