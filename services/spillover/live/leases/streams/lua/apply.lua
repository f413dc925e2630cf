-- Effects, records set aside and the checkpoint that covers them: all, or nothing.
-- Keys: the three of fence.lua, the stream of what is set aside, then those that effects touch.
-- Arguments: partition, epoch, id from which it moves, new checkpoint, how many records set aside are
-- kept, count of those that come to it, for each: number of its fields and values, these; then for
-- each run of effects: command, index of the key, number of arguments of one effect, of all together,
-- these.
-- Answer: {'ok'}, {'fenced', the later epoch}, {'moved'} if the checkpoint is not where it should be,
-- or an error reply before anything is changed.
local stored = read_checkpoint()
local later = later_epoch(stored)
if later then
  return { 'fenced', later }
end
if not stored or stored.epoch ~= EPOCH then
  return { 'moved' }
end
local from_id, value = ARGV[3], ARGV[4]
if stored.value == value then
  return { 'ok' } -- an earlier try whose answer was lost
end

if stored.id ~= from_id or is_before(string.match(value, '^%d+|([^|]+)|'), from_id) then
  return { 'moved' }
end

local at = 5
local function take()
  at = at + 1
  return ARGV[at - 1]
end

local function take_list(count)
  local list = {}
  for i = 1, count do
    list[i] = take()
  end
  return list
end

local aside_max = take()
local set_aside = {}
for i = 1, tonumber(take()) do
  set_aside[i] = take_list(tonumber(take()))
end
local effects = {}
while at <= #ARGV do
  local command, key = take(), KEYS[4 + tonumber(take())]
  local width, count = tonumber(take()), tonumber(take())
  for _ = 1, count / width do
    effects[#effects + 1] = { command = command, key = key, given = take_list(width) }
  end
end

-- A command that fails in the middle would leave half of the effects behind: what could fail is
-- looked at before. Integers are followed from effect to effect, and kept where a double is exact.
local KIND = {
  HSET = 'hash', HDEL = 'hash', HINCRBY = 'hash', SADD = 'set', SREM = 'set', SETBIT = 'string',
}
local EXACT = 2 ^ 53
local numbers = {}

local function as_integer(value)
  local is_one = value == '0' or string.match(value, '^%-?[1-9]%d*$')
  return is_one and tonumber(value) or false
end

local function problem_with(command, key)
  local kind = KIND[command]
  if not kind then
    return 'EFFECT ' .. command .. ' is none'
  end
  if not numbers[key] or numbers[key].kind ~= kind then
    local known = redis.call('TYPE', key).ok
    if known ~= 'none' and known ~= kind then
      return 'EFFECT cannot ' .. command .. ' ' .. key .. ', which is a ' .. known
    end
    if numbers[key] then
      return 'EFFECT cannot ' .. command .. ' ' .. key .. ', which other effects use otherwise'
    end
    numbers[key] = { kind = kind, of = {} }
  end
  return nil
end

local function problem_with_number(command, key, given)
  local of = numbers[key].of
  local field = given[1]
  if command == 'HSET' then
    of[field] = as_integer(given[2])
  elseif command == 'HDEL' then
    of[field] = 0
  elseif command == 'HINCRBY' then
    local before = of[field]
    if before == nil then
      local value = redis.call('HGET', key, field)
      before = not value and 0 or as_integer(value)
    end
    local after = before and before + tonumber(given[2])
    if not after or math.abs(before) >= EXACT or math.abs(after) >= EXACT then
      return 'EFFECT cannot HINCRBY ' .. key .. ' ' .. field .. ': no integer below 2^53'
    end
    of[field] = after
  end
  return nil
end

for _, effect in ipairs(effects) do
  local problem = problem_with(effect.command, effect.key)
    or problem_with_number(effect.command, effect.key, effect.given)
  if problem then
    return redis.error_reply(problem)
  end
end
local aside_kind = redis.call('TYPE', KEYS[4]).ok
if aside_kind ~= 'none' and aside_kind ~= 'stream' then
  return redis.error_reply('EFFECT cannot set records aside in a ' .. aside_kind)
end

redis.call('HSET', CHECKPOINTS, PARTITION, value)
for _, fields in ipairs(set_aside) do
  redis.call('XADD', KEYS[4], 'MAXLEN', aside_max, '*', unpack(fields))
end
for _, effect in ipairs(effects) do
  redis.call(effect.command, effect.key, unpack(effect.given))
end
return { 'ok' }
