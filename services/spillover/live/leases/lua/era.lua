-- The era of a group's data; it stands after group.lua where a script needs it. Whoever comes
-- first to an empty dataset, or to one that another server holds now (a restart, a promoted
-- replica), begins a new era. Where another server's data are found, or by whoever knew another era,
-- a grace is set within which nothing is won, so that holders can say first what they hold: a replica
-- may not have heard of them. A group that is new to all has no grace.

-- Instants of a clock that was ahead of this one: it was set back, or another server's was. As they
-- stand, whoever died would count as alive for so much longer. So nothing lasts longer than one
-- maximum lease from now, and what has begun began by now. Nobody relies on more than that.
local function forget_the_future(max_lease_ms)
  local to_ms = now_ms + max_lease_ms
  local allocations = redis.call('HGETALL', ALLOCATION)
  for i = 1, #allocations, 2 do
    local a = read_allocation(allocations[i + 1])
    if a and (a.since > now_ms or a.lease_to > to_ms or a.stop_to > to_ms) then
      a.since, a.lease_to = math.min(a.since, now_ms), math.min(a.lease_to, to_ms)
      a.stop_to = math.min(a.stop_to, to_ms)
      redis.call('HSET', ALLOCATION, allocations[i], allocation_text(a))
    end
  end
  local grabs = redis.call('HGETALL', GRAB)
  for i = 1, #grabs, 2 do
    local winner, since = live_winner(grabs[i + 1])
    local mark_to = winner and tonumber(string.match(grabs[i + 1], '%d+$'))
    if winner and (since > now_ms or mark_to > to_ms) then
      redis.call('HSET', GRAB, grabs[i], winner .. '|' .. text(math.min(since, now_ms)) .. '|'
        .. text(math.min(mark_to, to_ms)))
    end
  end
  local members = redis.call('HGETALL', MEMBERS)
  for i = 1, #members, 2 do
    local incarnation, alive_ms = living_member(members[i + 1])
    if incarnation and alive_ms > max_lease_ms then
      set_member(members[i], incarnation, max_lease_ms)
    end
  end
  local grace_to_ms = tonumber(redis.call('HGET', GROUP, 'grace_to_ms') or nil)
  if grace_to_ms and grace_to_ms > to_ms then
    redis.call('HSET', GROUP, 'grace_to_ms', text(to_ms))
  end
end

local function server_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
end

-- The first six arguments of scripts that use it: known era, fresh era, partitions, rule, balance,
-- grace in ms, which is one maximum lease. The era and when its grace ends; or nil and an error
-- reply, if the group is another than was meant.
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
  local is_moved = era and stored[4] ~= server
  if is_moved or not era then
    -- With the time, so that who offers the same one again begins another era all the same.
    era, grace_to_ms = fresh .. '-' .. text(now_ms), nil
    redis.call('HSET', GROUP, 'partitions', partitions, 'rule', rule, 'balance', balance,
      'era', era, 'server', server)
    forget_the_future(grace_ms)
  end
  -- It lasts no longer than one maximum lease, whatever somebody wrote there.
  if grace_to_ms and not (grace_to_ms <= now_ms + grace_ms) then
    grace_to_ms = now_ms + grace_ms
    redis.call('HSET', GROUP, 'grace_to_ms', text(grace_to_ms))
  end
  -- A process that is new here cannot know what was; the era of another server can.
  if (is_moved or (known ~= '' and known ~= era)) and not grace_to_ms then
    grace_to_ms = now_ms + grace_ms
    redis.call('HSET', GROUP, 'grace_to_ms', text(grace_to_ms))
  end
  return era, grace_to_ms or 0
end
