-- KEYS hashes; ARGV for how long (s) to keep them, or 0, the most bytes of a value, the fields
-- A value that is longer is left out, and so is what is no hash: one of them would keep its reader from all others.
local answer = {}
for index, key in ipairs(KEYS) do
  local values = redis.pcall('HMGET', key, unpack(ARGV, 3))
  if values.err and not string.find(values.err, 'WRONGTYPE', 1, true) then return values end
  local row = {values.err and 0 or redis.call('EXISTS', key)}
  for i = 1, #ARGV - 2 do
    local value = values[i]
    row[i + 1] = value and #value <= tonumber(ARGV[2]) and value or false
  end
  if ARGV[1] ~= '0' then redis.call('EXPIRE', key, ARGV[1]) end
  answer[index] = row
end
return answer
