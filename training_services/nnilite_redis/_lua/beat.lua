-- KEYS worker; ARGV beat, facts
redis.call('HSET', KEYS[1], 'beat', ARGV[1], 'facts', ARGV[2], 'at', redis.call('TIME')[1])
