-- A member comes in, unless another process of its id lives.
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
return { 1, 0, era }
