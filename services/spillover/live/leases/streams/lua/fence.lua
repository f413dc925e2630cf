-- What the scripts of a partition's stream share; it stands before each of them. Every script runs
-- alone and compares the epoch before it does anything. The highest epoch seen is the one at the
-- checkpoint, or that of the lease itself where the leases are kept in the same Redis: then a holder
-- is fenced as soon as another one has been granted the partition.

local CHECKPOINTS, ALLOCATION, STREAM = KEYS[1], KEYS[2], KEYS[3]
local PARTITION, EPOCH = ARGV[1], tonumber(ARGV[2])

local function text(number)
  return string.format('%.0f', number)
end

-- Up to here numbers are exact, as counts have to be. How many digits there are in an epoch, which
-- whoever reads without leases may take from a clock in ns, and in each part of an id; and in an
-- epoch of the leases, as in their lua/group.lua.
local EXACT, DIGITS_MAX, LEASED_DIGITS_MAX = 2 ^ 53, 19, 15

-- epoch|id|passed|skipped|set aside; nil for what was never claimed, or cannot be read.
local function read_checkpoint()
  local value = redis.call('HGET', CHECKPOINTS, PARTITION)
  local epoch, ms, sequence, passed, skipped, aside =
    string.match(value or '', '^(%d+)|(%d+)%-(%d+)|(%d+)|(%d+)|(%d+)$')
  if not epoch or math.max(#epoch, #ms, #sequence) > DIGITS_MAX
    or math.max(tonumber(passed), tonumber(skipped), tonumber(aside)) > EXACT then
    return nil
  end
  return {
    value = value, epoch = tonumber(epoch), id = ms .. '-' .. sequence, passed = tonumber(passed),
    skipped = skipped, aside = aside,
  }
end

-- The highest epoch that is later than the caller's; else nil.
local function later_epoch(stored)
  local lease = redis.call('HGET', ALLOCATION, PARTITION)
  local leased = string.match(lease or '', '^[^|]+|(%d+)|')
  leased = leased and #leased <= LEASED_DIGITS_MAX and tonumber(leased) or 0
  local highest = math.max(leased, stored and stored.epoch or 0)
  return highest > EPOCH and text(highest) or nil
end

-- Whether one id of a stream is less than another.
local function is_before(a, b)
  local a_ms, a_sequence = string.match(a, '^(%d+)%-(%d+)$')
  local b_ms, b_sequence = string.match(b, '^(%d+)%-(%d+)$')
  if a_ms == b_ms then
    a_ms, b_ms = a_sequence, b_sequence
  end
  return #a_ms < #b_ms or (#a_ms == #b_ms and a_ms < b_ms)
end

-- How many entries the stream ever had (nil: Redis before 7 does not count them), how many it has,
-- and the highest id that it ever had.
local function look_at_stream()
  if redis.call('EXISTS', STREAM) == 0 then
    return 0, 0, '0-0'
  end
  local info = redis.call('XINFO', 'STREAM', STREAM)
  local of = {}
  for i = 1, #info, 2 do
    of[info[i]] = info[i + 1]
  end
  return of['entries-added'], of['length'], of['last-generated-id']
end
