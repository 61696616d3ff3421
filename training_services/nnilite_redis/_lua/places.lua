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
