-- Whoever holds an earlier epoch is fenced from now on. Arguments: partition, epoch.
-- Answer: {'ok', the checkpoint}, {'fenced', the later epoch}, {'old'} if Redis is too old.
local stored = read_checkpoint()
local later = later_epoch(stored)
if later then
  return { 'fenced', later }
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
local value = table.concat(
  { text(EPOCH), stored.id, text(stored.passed), stored.skipped, stored.aside }, '|')
redis.call('HSET', CHECKPOINTS, PARTITION, value)
return { 'ok', value }
