-- The entries after an id, as they stand at one instant together with the counts.
-- Arguments: partition, epoch, id, how many at most, how many bytes at most (but one entry always).
-- Answer: {'ok', entries ever added (-1 if Redis does not count), entries there, 1 if these are the
-- last, entries}, {'fenced', the later epoch}, {'moved'} if the claim is gone, or the stream was begun
-- anew and Redis does not count.
local stored = read_checkpoint()
local later = later_epoch(stored)
if later then
  return { 'fenced', later }
end
if not stored or stored.epoch ~= EPOCH then
  return { 'moved' }
end
local added, length, highest = look_at_stream()
local last, count_max, bytes_max = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if not added and is_before(highest, last) then
  return { 'moved' }
end
local found, bytes, is_end = {}, 0, 0

-- By slices, so that large entries are not all loaded to be left behind.
local SLICE = 64
local function take_slice()
  local wanted = math.min(SLICE, count_max - #found)
  local slice = redis.call('XRANGE', STREAM, '(' .. last, '+', 'COUNT', wanted)
  for _, entry in ipairs(slice) do
    for _, part in ipairs(entry[2]) do
      bytes = bytes + #part
    end
    if #found > 0 and bytes > bytes_max then
      return false
    end
    found[#found + 1] = entry
    last = entry[1]
  end
  if #slice < wanted then
    is_end = 1
  end
  return #slice == wanted
end

while #found < count_max do
  if not take_slice() then
    break
  end
end
return { 'ok', added or -1, length, is_end, found }
