-- Whoever holds an earlier epoch is fenced from now on. Arguments: partition, epoch.
-- Answer: {'ok', the checkpoint}, {'fenced', the later epoch}, {'old'} if Redis is too old; an error
-- reply if there is a checkpoint that cannot be read: to begin anew would apply everything again.
local stored = read_checkpoint()
local later = later_epoch(stored)
if later then
  return { 'fenced', later }
end
local value = redis.call('HGET', CHECKPOINTS, PARTITION)
if value and not stored then
  return redis.error_reply('CHECKPOINT of partition ' .. PARTITION .. ' cannot be read: ' .. value)
end
local added, length = count_entries()
if not added then
  return { 'old' }
end
stored = stored or { id = '0-0', passed = 0, skipped = '0', aside = '0' }
-- Fewer entries than were passed: somebody deleted the stream and began it anew.
if added < stored.passed then
  stored.id, stored.passed = '0-0', added - length
end
value = table.concat(
  { text(EPOCH), stored.id, text(stored.passed), stored.skipped, stored.aside }, '|')
redis.call('HSET', CHECKPOINTS, PARTITION, value)
return { 'ok', value }
