-- A member tells what its loads are, and gets all that there is, with everybody's loads. One that it
-- does not hold is left as it is.
-- Arguments: none, or node, then partition, epoch and load in thousandths in turn.
local LOADS = KEYS[5]
for i = 2, #ARGV, 3 do
  if own_allocation(ARGV[i], ARGV[1], tonumber(ARGV[i + 1])) then
    redis.call('HSET', LOADS, ARGV[i], ARGV[i + 2] .. '|' .. text(now_ms))
  end
end
local stored = all_stored()
stored[#stored + 1] = lines(LOADS)
return stored
