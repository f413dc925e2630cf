-- The era of a group's data; it stands after group.lua where a script needs it. Whoever comes
-- first to an empty dataset, or to one that another server holds now (a restart, a promoted
-- replica), begins a new era. Whoever knew another one sets a grace within which nothing is won,
-- so that holders can say first what they hold. A group that is new to all has no grace.

local function server_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
end

-- The first six arguments of scripts that use it: known era, fresh era, partitions, rule, balance,
-- grace in ms. The era and when its grace ends; or nil and an error reply, if the group is another
-- than was meant.
local function enter_era()
  local known, fresh, grace_ms = ARGV[1], ARGV[2], tonumber(ARGV[6])
  local partitions, rule, balance = ARGV[3], ARGV[4], ARGV[5]
  local stored = redis.call(
    'HMGET', GROUP, 'partitions', 'rule', 'era', 'server', 'grace_to_ms', 'balance')
  if stored[1] and stored[1] ~= partitions then
    return nil, redis.error_reply('PARTITIONS ' .. stored[1])
  end
  if stored[2] and stored[2] ~= rule then
    return nil, redis.error_reply('RULE ' .. stored[2])
  end
  if stored[6] and stored[6] ~= balance then
    return nil, redis.error_reply('BALANCE ' .. stored[6])
  end
  local era, server, grace_to_ms = stored[3], server_id(), tonumber(stored[5] or nil)
  if not era or stored[4] ~= server then
    -- With the time, so that who offers the same one again begins another era all the same.
    era, grace_to_ms = fresh .. '-' .. text(now_ms), nil
    redis.call('HSET', GROUP, 'partitions', partitions, 'rule', rule, 'balance', balance,
      'era', era, 'server', server)
    redis.call('HDEL', GROUP, 'grace_to_ms')
  end
  if known ~= '' and known ~= era and not grace_to_ms then
    grace_to_ms = now_ms + grace_ms
    redis.call('HSET', GROUP, 'grace_to_ms', text(grace_to_ms))
  end
  return era, grace_to_ms or 0
end
