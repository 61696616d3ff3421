-- KEYS job; ARGV report, prefix of queues
local known = redis.call('HMGET', KEYS[1], 'worker', 'queue', 'entry', 'fenced')
if redis.call('EXISTS', KEYS[1]) == 0 then return '' end
if known[1] then
  redis.call('HSET', KEYS[1], 'cancel', '1')
  return known[1]
end
if known[2] then redis.call('XDEL', ARGV[2] .. known[2], known[3]) end
if not known[4] then redis.call('HSET', KEYS[1], 'report', ARGV[1], 'fenced', '1') end
return ''
