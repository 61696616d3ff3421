-- KEYS job, jobs; ARGV name, seconds to keep, prefix of queues
redis.call('SREM', KEYS[2], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then return '' end
local known = redis.call('HMGET', KEYS[1], 'worker', 'queue', 'entry')
if not known[1] then
  if known[2] then redis.call('XDEL', ARGV[3] .. known[2], known[3]) end
  redis.call('DEL', KEYS[1])
  return ''
end
redis.call('HDEL', KEYS[1], 'task')
redis.call('HSET', KEYS[1], 'removed', '1')
redis.call('EXPIRE', KEYS[1], ARGV[2])
return known[1]
