-- KEYS job; ARGV the beat that was seen last, or nothing
if (redis.call('HGET', KEYS[1], 'beat') or '') ~= ARGV[1] then return 'alive' end
redis.call('HSET', KEYS[1], 'fenced', '1')
return 'fenced'
