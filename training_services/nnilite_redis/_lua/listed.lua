-- Whoever has the pool's password may write lists without end, over which a reader would stand still. One that is longer
-- than programs of nnilite make it is sent as its length alone; entries with a longer text are left out.
local function listed(command, key, most_entries, most_bytes, most_in_all)
  local found, step = redis.call(command, key), command == 'HGETALL' and 2 or 1
  local answer, bytes = {#found / step, 0}, 0
  if #found / step > most_entries then return answer end
  for i = 1, #found, step do
    local size = #found[i] + #found[i + step - 1]
    if size <= most_bytes then
      bytes = bytes + size
      for j = i, i + step - 1 do answer[#answer + 1] = found[j] end
    end
  end
  if bytes > most_in_all then return {answer[1], bytes} end
  answer[2] = bytes
  return answer
end
