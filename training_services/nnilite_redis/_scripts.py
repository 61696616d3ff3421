"""What must happen at once or not at all, as Lua that Redis runs. What each does is said where it is called, in `_api`.

A reply is a status word, or a list that begins with one.
"""

from __future__ import annotations

SUBMIT = """
-- KEYS job, queue, queues, bell, jobs; ARGV name, task, queue's name, wants, seconds to keep
if redis.call('EXISTS', KEYS[1]) == 1 then return 'known' end
redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
redis.pcall('XGROUP', 'CREATE', KEYS[2], 'workers', '0', 'MKSTREAM')
local entry = redis.call('XADD', KEYS[2], '*', 'job', ARGV[1])
redis.call('HSET', KEYS[1], 'task', ARGV[2], 'queue', ARGV[3], 'entry', entry)
redis.call('SADD', KEYS[5], ARGV[1])
redis.call('XADD', KEYS[4], 'MAXLEN', '~', '100', '*', 'queue', ARGV[3])
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

TAKE = (
    _HEADS
    + """
-- KEYS queues; ARGV worker, seconds that the server must have been up, prefix of jobs
local up = string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
if tonumber(up or '0') < tonumber(ARGV[2]) then return {'settling'} end
while true do
  local best, first
  for _, key in ipairs(KEYS) do
    local last = delivered(key)
    if last then
      local head = redis.call('XRANGE', key, '(' .. last, '+', 'COUNT', '1')
      if #head > 0 and (not first or later(first, head[1][1])) then best, first = key, head[1][1] end
    end
  end
  if not best then return {'none'} end
  local got = redis.call('XREADGROUP', 'GROUP', 'workers', ARGV[1], 'COUNT', '1', 'STREAMS', best, '>')
  local entry, name = got[1][2][1][1], got[1][2][1][2][2]
  local job = ARGV[3] .. name
  local known = redis.call('HMGET', job, 'task', 'worker', 'fenced')
  if known[1] and not known[2] and not known[3] then
    redis.call('HSET', job, 'worker', ARGV[1])
    return {'taken', name, known[1], best, entry}
  end
  redis.call('XACK', best, 'workers', entry)
  redis.call('XDEL', best, entry)
end
"""
)

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

SYNC = """
-- KEYS job, jobs; ARGV worker, beat, report, seconds to keep, prefix of queues, name
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'found', ARGV[1])
  redis.call('SADD', KEYS[2], ARGV[6])
end
local known = redis.call('HMGET', KEYS[1], 'worker', 'fenced', 'cancel', 'removed', 'queue', 'entry')
if known[2] or (known[1] and known[1] ~= ARGV[1]) then
  return {'fenced', known[4] or ''}
end
if not known[1] and known[5] then
  redis.call('XDEL', ARGV[5] .. known[5], known[6])
end
redis.call('HSET', KEYS[1], 'worker', ARGV[1], 'beat', ARGV[2], 'report', ARGV[3])
redis.call('HDEL', KEYS[1], 'task')
redis.call('EXPIRE', KEYS[1], ARGV[4])
return {'kept', known[4] or '', known[3] or ''}
"""

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
