-- Tables, strings and closures: usage lua5.4 objects.lua ROUNDS.  Prints a digest of what it computed.
local rounds = assert(tonumber(arg[1]), "usage: objects.lua ROUNDS")
local seed = 1
local function random(bound)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed // 65536 % bound
end

local function words(count)
  local list = {}
  for i = 1, count do
    list[i] = "w" .. random(5000) .. "-" .. i % 97
  end
  return list
end

local function tree(depth)
  if depth == 0 then
    return { value = random(1000) }
  end
  return { left = tree(depth - 1), right = tree(depth - 1), value = depth }
end

local function sum(node)
  return node and node.value + sum(node.left) + sum(node.right) or 0
end

local digest = 0
for round = 1, rounds do
  local list, count = words(20000), {}
  for _, word in ipairs(list) do
    count[word] = (count[word] or 0) + 1
  end
  local keys = {}
  for key in pairs(count) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  local text = table.concat(keys, " ")
  local long = text:gsub("%d+", function(number) return #number > 2 and number .. number or number end)
  local counters = {}
  for i = 1, 5000 do
    local total = i
    counters[i] = function(step) total = total + step; return total end
  end
  for i = 1, 5000 do
    digest = (digest + counters[i](round)) % 1000000007
  end
  digest = (digest * 31 + #long + sum(tree(13))) % 1000000007
end
print(string.format("objects.lua check=%x", digest))
