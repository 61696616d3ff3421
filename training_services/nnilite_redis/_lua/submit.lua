-- KEYS job, queue, queues, bell, jobs; ARGV name, task, queue's name, wants, seconds to keep
if redis.call('EXISTS', KEYS[1]) == 1 then return 'known' end
redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
redis.pcall('XGROUP', 'CREATE', KEYS[2], 'workers', '0', 'MKSTREAM')
-- The bell numbers the entries of all queues, so that one knows which of two came first in the same millisecond.
local entry = redis.call('XADD', KEYS[4], 'MAXLEN', '~', '100', '*', 'queue', ARGV[3])
local queued = redis.pcall('XADD', KEYS[2], entry, 'job', ARGV[1])
if type(queued) == 'table' then entry = redis.call('XADD', KEYS[2], '*', 'job', ARGV[1]) end
redis.call('HSET', KEYS[1], 'task', ARGV[2], 'queue', ARGV[3], 'entry', entry)
redis.call('SADD', KEYS[5], ARGV[1])
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[5]) end
return 'queued'
