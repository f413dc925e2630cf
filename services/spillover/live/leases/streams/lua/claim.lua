-- Whoever holds an earlier epoch is fenced from now on. Arguments: partition, epoch.
-- Answer: {'ok', the checkpoint, 1 if Redis counts the entries, else 0}, {'fenced', the later epoch};
-- an error reply if there is a checkpoint that cannot be read: to begin anew would apply everything
-- again.
local stored = read_checkpoint()
local later = later_epoch(stored)
if later then
  return { 'fenced', later }
end
local value = redis.call('HGET', CHECKPOINTS, PARTITION)
if value and not stored then
  return redis.error_reply('CHECKPOINT of partition ' .. PARTITION .. ' cannot be read: ' .. value)
end
local added, length, last = look_at_stream()
stored = stored or { id = '0-0', passed = 0, skipped = '0', aside = '0' }
if not added then
  -- Ids only grow: somebody deleted the stream and began it anew.
  if is_before(last, stored.id) then
    stored.id, stored.passed = '0-0', 0
  end
elseif added < stored.passed then
  -- Fewer entries than were passed: begun anew; or it comes from a Redis that did not count, which
  -- the entry of the checkpoint shows, or was copied: what was applied must not be applied again.
  if #redis.call('XRANGE', STREAM, stored.id, stored.id) == 0 then
    stored.id = '0-0'
  end
  stored.passed = added - length
end
value = table.concat(
  { text(EPOCH), stored.id, text(stored.passed), stored.skipped, stored.aside }, '|')
redis.call('HSET', CHECKPOINTS, PARTITION, value)
return { 'ok', value, added and 1 or 0 }
