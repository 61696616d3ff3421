-- Who is ahead has the higher priority, or the older entry. A slot, and a claim, end by themselves unless they are
-- renewed: by the worker that has the job, or by one that would take it. Without slots the time is not asked for.
local function ahead(a, b)
  if a.priority ~= b.priority then return a.priority > b.priority end
  if a.entry ~= b.entry then return later(b.entry, a.entry) end
  return a.job < b.job
end
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
-- What begins with no time, as a stranger may have written it, has ended.
local function ends_at(text)
  local digits = string.match(text or '', '^%d+') or ''
  return #digits <= 15 and tonumber(digits) or 0
end
local function count(slots, time)
  local held, found = redis.call('HGETALL', slots), 0
  for i = 1, #held, 2 do
    if ends_at(held[i + 1]) < time then redis.call('HDEL', slots, held[i])
    else found = found + 1 end
  end
  return found
end
local function behind(claims, head, time)
  local found = redis.call('HGETALL', claims)
  for i = 1, #found, 2 do
    local priority, entry, ends = string.match(found[i + 1], '^(%-?%d+) (%d+%-%d+) (%d+) ')
    local claim = {priority = tonumber(priority), entry = entry, job = found[i]}
    if ends_at(ends) < time then redis.call('HDEL', claims, found[i])
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
