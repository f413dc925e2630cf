-- Whether another node has won what this one serves. Arguments: partition, node, epoch.
if not own_allocation(ARGV[1], ARGV[2], tonumber(ARGV[3])) then
  return 0
end
local winner = live_winner(redis.call('HGET', GRAB, ARGV[1]))
return winner and winner ~= ARGV[2] and 1 or 0
