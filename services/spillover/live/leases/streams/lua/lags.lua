-- How far each partition's checkpoint is behind its stream. Keys: checkpoints, then the streams.
-- Arguments: the first stream's partition. Answer: Redis's clock in ms, then for each stream:
-- {checkpoint or '', entries ever added (-1 if Redis does not count), entries there, id of the
-- oldest entry beyond the checkpoint or '', id of the oldest of all if Redis does not count, or ''}.
local time = redis.call('TIME')
local answer = { time[1] * 1000 + math.floor(time[2] / 1000) }
for i = 2, #KEYS do
  local value = redis.call('HGET', KEYS[1], tonumber(ARGV[1]) + i - 2) or ''
  local added, length, oldest, first = 0, 0, '', ''
  if redis.call('EXISTS', KEYS[i]) == 1 then
    added = -1
    local info = redis.call('XINFO', 'STREAM', KEYS[i])
    for j = 1, #info, 2 do
      if info[j] == 'entries-added' then
        added = info[j + 1]
      elseif info[j] == 'length' then
        length = info[j + 1]
      end
    end
    local ms, sequence = string.match(value, '^%d+|(%d+)%-(%d+)|')
    local is_id = ms and math.max(#ms, #sequence) <= 19  -- as in fence.lua
    local id = is_id and ms .. '-' .. sequence or '0-0'
    local function first_from(start)
      local entry = redis.call('XRANGE', KEYS[i], start, '+', 'COUNT', 1)[1]
      return entry and entry[1] or ''
    end
    oldest, first = first_from('(' .. id), added < 0 and first_from('-') or ''
  end
  answer[#answer + 1] = { value, added, length, oldest, first }
end
return answer
