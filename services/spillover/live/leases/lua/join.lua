-- A member comes in, unless another process of its id lives. It clears away those that are dead: an
-- id that never comes again (a pod's) would be read in each survey for ever. Dead and not there are
-- the same to all scripts; one that comes back after all registers itself with its next renewal.
-- Arguments: the six of enter_era, node, incarnation, maximum lease in ms.
-- Answer: {1 or 0, for how many ms the other one counts as alive, era}.
local era, refused = enter_era()
if not era then
  return refused
end
local node, incarnation = ARGV[7], ARGV[8]
local other, alive_ms = living_member(redis.call('HGET', MEMBERS, node))
if other and other ~= incarnation then
  return { 0, alive_ms, era }
end
set_member(node, incarnation, tonumber(ARGV[9]))
local members = redis.call('HGETALL', MEMBERS)
for i = 1, #members, 2 do
  local alive_to_ms = is_name(members[i]) and read_member(members[i + 1])
  if alive_to_ms and alive_to_ms <= now_ms then
    redis.call('HDEL', MEMBERS, members[i])
  end
end
return { 1, 0, era }
