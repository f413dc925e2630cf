-- What the scripts of a lease group share; it stands before each of them. Every script runs alone,
-- goes by Redis's own clock, and compares owner and epoch before it changes anything. The twin in
-- memory, sim/leases/store_twin.py, does the same step by step.

local ALLOCATION, GRAB, MEMBERS, GROUP = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function clock_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local now_ms = clock_ms()

local function text(number)
  return string.format('%.0f', number)
end

-- How many digits a number has that we wrote: it is exact in Lua. More than that is somebody else's,
-- and an epoch taken from it would grow no more.
local DIGITS_MAX = 15

-- Whether these are such numbers.
local function are_whole(...)
  for i = 1, select('#', ...) do
    if #select(i, ...) > DIGITS_MAX then
      return false
    end
  end
  return true
end

-- Whether the field is one of that many partitions, as we write it.
local function is_partition(field, partitions)
  return (field == '0' or string.find(field, '^[1-9]%d*$')) and tonumber(field) < partitions
end

-- Whether a field can be a member's id.
local function is_name(field)
  return #field <= 63 and string.find(field, '^[%w._-]+$') ~= nil
end

-- node|epoch|since_ms|lease_to_ms|stop_to_ms; nil for what was never served, or cannot be read.
local function read_allocation(value)
  if not value then
    return nil
  end
  local node, epoch, since, lease_to, stop_to =
    string.match(value, '^([^|]+)|(%d+)|(%d+)|(%d+)|(%d+)$')
  if not node or not are_whole(epoch, since, lease_to, stop_to) then
    return nil
  end
  return {
    node = node,
    epoch = tonumber(epoch),
    since = tonumber(since),
    lease_to = tonumber(lease_to),
    stop_to = tonumber(stop_to),
  }
end

local function allocation_text(a)
  return a.node .. '|' .. text(a.epoch) .. '|' .. text(a.since) .. '|' .. text(a.lease_to)
    .. '|' .. text(a.stop_to)
end

-- When the lease ends, or its holder must have stopped.
local function over_ms(a)
  if a.stop_to > 0 and a.stop_to < a.lease_to then
    return a.stop_to
  end
  return a.lease_to
end

local function is_live(a)
  return a ~= nil and over_ms(a) > now_ms
end

-- What the node holds with that epoch, its lease not over; else nil.
local function own_allocation(partition, node, epoch)
  local a = read_allocation(redis.call('HGET', ALLOCATION, partition))
  if is_live(a) and a.node == node and a.epoch == epoch then
    return a
  end
  return nil
end

-- node|since_ms|to_ms: the winner while its mark lasts and since when it has it; else nil.
local function live_winner(value)
  if not value then
    return nil
  end
  local node, since, to = string.match(value, '^([^|]+)|(%d+)|(%d+)$')
  if node and are_whole(since, to) and tonumber(to) > now_ms then
    return node, tonumber(since)
  end
  return nil
end

-- alive_to_ms|incarnation: both; nil for what cannot be read.
local function read_member(value)
  if not value then
    return nil
  end
  local alive_to, incarnation = string.match(value, '^(%d+)|([^|]*)$')
  if alive_to and are_whole(alive_to) then
    return tonumber(alive_to), incarnation
  end
  return nil
end

-- The incarnation and for how long it counts as alive; else nil.
local function living_member(value)
  local alive_to_ms, incarnation = read_member(value)
  if alive_to_ms and alive_to_ms > now_ms then
    return incarnation, alive_to_ms - now_ms
  end
  return nil
end

local function set_member(node, incarnation, alive_ms)
  redis.call('HSET', MEMBERS, node, text(now_ms + alive_ms) .. '|' .. incarnation)
end
