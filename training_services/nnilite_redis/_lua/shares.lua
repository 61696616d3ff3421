-- KEYS slots, claims; ARGV the most entries of each, the most bytes of one and of all
local most, bytes, in_all = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local slots, claims = listed('HGETALL', KEYS[1], most, bytes, in_all), listed('HGETALL', KEYS[2], most, bytes, in_all)
return {redis.call('TIME')[1], slots, claims}
