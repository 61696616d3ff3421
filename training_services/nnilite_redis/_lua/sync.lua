-- A slot that has run out while its worker was silent may be another's by now: then this job has to wait for one again.
-- Who never had one, as its experiment shares slots only from now on, gets one all the same: nothing is ended by that.
-- KEYS job, jobs, experiment, slots, bell, claims; ARGV worker, beat, report, seconds to keep, prefix of queues, name,
-- its experiment, whether it is over, for how long (ms) a claim counts
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'found', ARGV[1])
  redis.call('SADD', KEYS[2], ARGV[6])
end
local known = redis.call('HMGET', KEYS[1], 'worker', 'fenced', 'cancel', 'removed', 'queue', 'entry', 'slot')
if known[2] or (known[1] and known[1] ~= ARGV[1]) then
  return {'fenced', known[4] or ''}
end
if not known[1] and known[5] then
  redis.call('XDEL', ARGV[5] .. known[5], known[6])
end
redis.call('HSET', KEYS[1], 'worker', ARGV[1], 'beat', ARGV[2], 'report', ARGV[3])
redis.call('HDEL', KEYS[1], 'task')
redis.call('EXPIRE', KEYS[1], ARGV[4])
local terms = redis.call('HMGET', KEYS[3], 'slots', 'period', 'priority')
if ARGV[8] == '' and terms[1] then
  local head = {job = ARGV[6], entry = known[6], experiment = ARGV[7], limit = tonumber(terms[1]) or 0}
  head.period, head.priority = tonumber(terms[2] or '') or 0, tonumber(terms[3] or '') or 0
  if known[7] and head.entry and ends_at(redis.call('HGET', KEYS[4], ARGV[6])) < now() then
    if not may_start(head, KEYS[4], KEYS[6], tonumber(ARGV[9]), ARGV[4]) then
      return {'waits', known[4] or '', known[3] or ''}
    end
  else
    hold(head, KEYS[4], now(), ARGV[4])
  end
  redis.call('HSET', KEYS[1], 'slot', '1')
else
  redis.call('HDEL', KEYS[1], 'slot')
  if redis.call('HDEL', KEYS[4], ARGV[6]) == 1 then
    redis.call('XADD', KEYS[5], 'MAXLEN', '~', '100', '*', 'queue', 'slots')
    redis.call('EXPIRE', KEYS[5], ARGV[4])
  end
end
return {'kept', known[4] or '', known[3] or ''}
