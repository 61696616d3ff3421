-- KEYS slots, claims
local time = redis.call('TIME')
return {time[1], redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
