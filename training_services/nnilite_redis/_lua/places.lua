-- KEYS queues; ARGV the most entries of all, the most bytes of a job's name
local found = {}
for index, key in ipairs(KEYS) do
  local last, room = delivered(key), tonumber(ARGV[1]) - #found
  if last and room > 0 then
    for _, entry in ipairs(redis.call('XRANGE', key, '(' .. last, '+', 'COUNT', room)) do
      if #entry[2][2] <= tonumber(ARGV[2]) then found[#found + 1] = {index, entry[1], entry[2][2]} end
    end
  end
end
return found
