-- KEYS mail; ARGV the most messages, the most bytes of one and of all, the entry of the message that was read before
-- Takes messages out. One that is longer than those of nnilite is dropped, as it would fill its reader's memory.
redis.call('XDEL', KEYS[1], ARGV[4])
local messages, bytes, dropped = {}, 0, 0
while #messages < tonumber(ARGV[1]) do
  local entry = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', '1')[1]
  if not entry then break end
  local size = 0
  for _, text in ipairs(entry[2]) do size = size + #text end
  if size > tonumber(ARGV[2]) then
    dropped = dropped + 1
  else
    bytes = bytes + size
    if bytes > tonumber(ARGV[3]) then break end
    messages[#messages + 1] = entry
  end
  redis.call('XDEL', KEYS[1], entry[1])
end
return {dropped, messages}
