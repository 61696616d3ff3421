"""What must happen at once or not at all, as Lua that Redis runs. What each does is said where it is called, in `_api`.

A reply is a status word, or a list that begins with one.
"""

from __future__ import annotations

SUBMIT = """
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
"""

_HEADS = """
local function later(a, b)
  local a1, a2 = string.match(a, '(%d+)-(%d+)')
  local b1, b2 = string.match(b, '(%d+)-(%d+)')
  a1, b1 = tonumber(a1), tonumber(b1)
  if a1 ~= b1 then return a1 > b1 end
  return tonumber(a2) > tonumber(b2)
end
local function delivered(key)
  local groups = redis.pcall('XINFO', 'GROUPS', key)
  if groups.err then return nil end
  for _, group in ipairs(groups) do
    local name, last
    for i = 1, #group, 2 do
      if group[i] == 'name' then name = group[i + 1] end
      if group[i] == 'last-delivered-id' then last = group[i + 1] end
    end
    if name == 'workers' then return last end
  end
  return nil
end
"""

# Who is ahead has the higher priority, or the older entry. A slot, and a claim, end by themselves unless they are
# renewed: by the worker that has the job, or by one that would take it. Without slots the time is not asked for.
_SLOTS = """
local function ahead(a, b)
  if a.priority ~= b.priority then return a.priority > b.priority end
  if a.entry ~= b.entry then return later(b.entry, a.entry) end
  return a.job < b.job
end
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local function count(slots, time)
  local held, found = redis.call('HGETALL', slots), 0
  for i = 1, #held, 2 do
    if tonumber(string.match(held[i + 1], '^%d+')) < time then redis.call('HDEL', slots, held[i])
    else found = found + 1 end
  end
  return found
end
local function behind(claims, head, time)
  local found = redis.call('HGETALL', claims)
  for i = 1, #found, 2 do
    local priority, entry, ends = string.match(found[i + 1], '^(%-?%d+) (%d+%-%d+) (%d+) ')
    local claim = {priority = tonumber(priority), entry = entry, job = found[i]}
    if not ends or tonumber(ends) < time then redis.call('HDEL', claims, found[i])
    elseif claim.job ~= head.job and ahead(claim, head) then return true end
  end
  return false
end
local function hold(head, slots, time, kept)
  redis.call('HSET', slots, head.job, string.format('%.0f %s', time + head.period, head.experiment))
  redis.call('EXPIRE', slots, kept)
end
local function may_start(head, slots, claims, claimed_ms, kept)
  local time = now()
  if count(slots, time) < head.limit and not behind(claims, head, time) then
    redis.call('HDEL', claims, head.job)
    hold(head, slots, time, kept)
    return true
  end
  local place = string.format('%.0f %s %.0f %s', head.priority, head.entry, time + claimed_ms, head.experiment)
  redis.call('HSET', claims, head.job, place)
  redis.call('EXPIRE', claims, kept)
  return false
end
"""

TAKE = (
    _HEADS
    + _SLOTS
    + """
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
"""
)

SHARES = """
-- KEYS slots, claims
local time = redis.call('TIME')
return {time[1], redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
"""

PLACES = (
    _HEADS
    + """
-- KEYS queues; ARGV the most entries of each
local found = {}
for index, key in ipairs(KEYS) do
  local last = delivered(key)
  if last then
    for _, entry in ipairs(redis.call('XRANGE', key, '(' .. last, '+', 'COUNT', ARGV[1])) do
      found[#found + 1] = {index, entry[1], entry[2][2]}
    end
  end
end
return found
"""
)

# A slot that has run out while its worker was silent may be another's by now: then this job has to wait for one again.
# Who never had one, as its experiment shares slots only from now on, gets one all the same: nothing is ended by that.
SYNC = (
    _HEADS
    + _SLOTS
    + """
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
  local ends = tonumber(string.match(redis.call('HGET', KEYS[4], ARGV[6]) or '', '^%d+'))
  if known[7] and head.entry and (not ends or ends < now()) then
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
"""
)

FENCE = """
-- KEYS job; ARGV the beat that was seen last, or nothing
if (redis.call('HGET', KEYS[1], 'beat') or '') ~= ARGV[1] then return 'alive' end
redis.call('HSET', KEYS[1], 'fenced', '1')
return 'fenced'
"""

CANCEL = """
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
"""

REMOVE = """
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
"""
