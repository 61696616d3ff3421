-- KEYS slots, claims, queues; ARGV worker, seconds that the server must have been up, prefix of jobs, prefix of
-- experiments, for how long (ms) a claim counts, seconds to keep, the experiment of each queue
local function head_of(index)
  local last = delivered(KEYS[index])
  if not last then return nil end
  local entry = redis.call('XRANGE', KEYS[index], '(' .. last, '+', 'COUNT', '1')[1]
  if not entry then return nil end
  local head = {key = KEYS[index], entry = entry[1], job = entry[2][2], priority = 0, experiment = ARGV[index + 4]}
  local terms = redis.call('HMGET', ARGV[4] .. head.experiment, 'priority', 'slots', 'period')
  head.priority = tonumber(terms[1] or '') or 0
  local known = redis.call('HMGET', ARGV[3] .. head.job, 'task', 'worker', 'fenced')
  if known[1] and not known[2] and not known[3] then head.limit = tonumber(terms[2] or '') end
  head.period = tonumber(terms[3] or '') or 0
  return head
end
local up = string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
if tonumber(up or '0') < tonumber(ARGV[2]) then return {'settling'} end
while true do
  local heads, best, refused = {}, nil, false
  for index = 3, #KEYS do heads[#heads + 1] = head_of(index) end
  table.sort(heads, ahead)
  for _, head in ipairs(heads) do
    if not head.limit or (not refused and may_start(head, KEYS[1], KEYS[2], tonumber(ARGV[5]), ARGV[6])) then
      best = head.key
      break
    end
    refused = true
  end
  if not best then return {'none'} end
  local got = redis.call('XREADGROUP', 'GROUP', 'workers', ARGV[1], 'COUNT', '1', 'STREAMS', best, '>')
  local entry, name = got[1][2][1][1], got[1][2][1][2][2]
  local job = ARGV[3] .. name
  local known = redis.call('HMGET', job, 'task', 'worker', 'fenced')
  if known[1] and not known[2] and not known[3] then
    redis.call('HSET', job, 'worker', ARGV[1])
    if redis.call('HEXISTS', KEYS[1], name) == 1 then redis.call('HSET', job, 'slot', '1') end
    return {'taken', name, known[1], best, entry}
  end
  redis.call('XACK', best, 'workers', entry)
  redis.call('XDEL', best, entry)
end
