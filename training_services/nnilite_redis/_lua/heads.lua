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
