-- What scripts are given: the functions that they know from Karmada, each charged for what it does.
-- Runs once for each call of a script, before it, and gives the script's environment and what calls its functions.

local charge, weigh, exhausted, found = ...

local assert, error, ipairs, next, pairs, pcall = assert, error, ipairs, next, pairs, pcall
local select, tonumber, tostring, type, unpack, xpcall = select, tonumber, tostring, type, unpack, xpcall
local string, table, math = string, table, math
local byte, char, find, format = string.byte, string.char, string.find, string.format
local gmatch, gsub, lower, match = string.gmatch, string.gsub, string.lower, string.match
local rep, reverse, sub, upper = string.rep, string.reverse, string.sub, string.upper
local concat, insert, maxn, remove, sort = table.concat, table.insert, table.maxn, table.remove, table.sort
local pack, ceil, log = table.pack, math.ceil, math.log

local LONGEST = 1000000
local LONGEST_PATTERN = 1000

-- What a function gave, or its error with the line of whoever called the function that calls this.
local function answer(ok, first, ...)
  if ok then
    return first, ...
  end
  if first == 'not enough memory' then
    exhausted()
  elseif type(first) ~= 'string' or find(first, '^<string>:%d+:') then
    error(first, 0)
  end
  error(first, 3)
end

-- What a caught call gave; what was ended for want of memory stays ended.
local function caught(ok, first, ...)
  if not ok and first == 'not enough memory' then
    exhausted()
  end
  return ok, first, ...
end

local function length(text, level)
  local kind = type(text)
  if kind == 'number' then
    return 24
  elseif kind ~= 'string' then
    return 0
  elseif #text > LONGEST then
    error('string of more than ' .. LONGEST .. ' bytes', level or 3)
  end
  return #text
end

-- A function of strings that looks at each byte once.
local function plain(native)
  return function(text, ...)
    charge(2 + length(text) / 256)
    return answer(pcall(native, text, ...))
  end
end

-- What a search may look at between two steps, paid before it begins.
local function search(text, pattern, literal)
  local n, m = length(text, 4), length(pattern, 4)
  charge(4 + n / 256 + n * m / 4096)
  if literal then
    return
  end
  if m > LONGEST_PATTERN then
    error('pattern of more than ' .. LONGEST_PATTERN .. ' bytes', 3)
  end
  -- These two go through the text in one step.
  if m > 0 and find(pattern, '%%[b1-9]') then
    weigh(n / 256)
  else
    weigh(0)
  end
end

local function reaching(native)
  return function(text, pattern, ...)
    search(text, pattern, native == find and select(2, ...))
    return answer(pcall(native, text, pattern, ...))
  end
end

local function shown(value)
  local kind = type(value)
  if kind == 'nil' or kind == 'boolean' or kind == 'number' or kind == 'string' then
    return tostring(value)
  end
  -- Where it lies in memory is nobody's business.
  return kind
end

local function missing(name)
  return function()
    error(name .. ' is not available to these scripts', 2)
  end
end

for name in pairs(string) do
  string[name] = nil
end
for name, native in pairs({byte = byte, lower = lower, reverse = reverse, sub = sub, upper = upper}) do
  string[name] = plain(native)
end
for name, native in pairs({find = find, gsub = gsub, match = match}) do
  string[name] = reaching(native)
end
function string.char(...)
  charge(2 + select('#', ...) / 64)
  return answer(pcall(char, ...))
end
function string.len(text)
  return length(text)
end
function string.format(form, ...)
  charge(8 + length(form) / 64)
  local given = pack(...)
  for at = 1, given.n do
    local kind = type(given[at])
    if kind == 'string' then
      charge(length(given[at]) / 256)
    elseif kind ~= 'number' then
      given[at] = shown(given[at])
    end
  end
  return answer(pcall(format, form, unpack(given, 1, given.n)))
end
function string.gmatch(text, pattern)
  search(text, pattern)
  local each = answer(pcall(gmatch, text, pattern))
  return function()
    charge(2)
    return answer(pcall(each))
  end
end
function string.rep(text, times)
  charge(2 + length(text) / 256)
  if type(times) == 'number' and times > 0 and #text * times > LONGEST then
    error('string of more than ' .. LONGEST .. ' bytes', 2)
  end
  return answer(pcall(rep, text, times))
end
string.dump = missing('string.dump')

local tables = {}
local function size(list)
  return type(list) == 'table' and #list or 0
end
function tables.concat(list, between, from, to)
  charge(4 + length(between) / 256)
  local first, last = from or 1, to or size(list)
  if type(first) == 'number' and type(last) == 'number' and last >= first then
    charge((last - first) / 8)
  end
  return answer(pcall(concat, list, between, from, to))
end
function tables.getn(list)
  return size(list)
end
function tables.insert(list, ...)
  charge(1)
  if select('#', ...) > 1 then
    charge(size(list) / 32)
  end
  return answer(pcall(insert, list, ...))
end
function tables.maxn(list)
  charge(2 + size(list) / 8)
  return answer(pcall(maxn, list))
end
function tables.remove(list, at)
  charge(1)
  if at then
    charge(size(list) / 32)
    return answer(pcall(remove, list, at))
  end
  return answer(pcall(remove, list))
end
function tables.sort(list, before)
  local n = size(list)
  charge(4 + n * log(n + 2) / 4)
  return answer(pcall(sort, list, before))
end

local maths = {huge = math.huge, pi = math.pi, mod = math.fmod, randomseed = function() end}
for _, name in ipairs({
  'abs', 'acos', 'asin', 'atan', 'atan2', 'ceil', 'cos', 'cosh', 'deg', 'exp', 'floor', 'fmod', 'frexp', 'ldexp', 'log',
  'log10', 'max', 'min', 'modf', 'pow', 'rad', 'random', 'sin', 'sinh', 'sqrt', 'tan', 'tanh',
}) do
  maths[name] = math[name]
end
-- The same numbers in each call.
math.randomseed(1)

local modules = {string = string, table = tables, math = maths}
for module, functions in pairs(found) do
  local given = {}
  for name, native in pairs(functions) do
    given[name] = function(...)
      charge(4)
      return answer(native(...))
    end
  end
  modules[module] = given
end

local globals = {
  _VERSION = 'Lua 5.1',
  assert = assert,
  error = error,
  ipairs = ipairs,
  next = next,
  pairs = pairs,
  print = function() end,
  select = select,
  tostring = shown,
  type = type,
  unpack = function(list, ...)
    charge(4)
    return answer(pcall(unpack, list, ...))
  end,
  math = maths,
  os = modules.os,
  string = string,
  table = tables,
}
globals._G = globals
function globals.pcall(...)
  charge(16)
  return caught(pcall(...))
end
function globals.xpcall(...)
  charge(16)
  return caught(xpcall(...))
end
function globals.tonumber(text, base)
  charge(1)
  if type(text) == 'string' and #text > 200 then
    return nil
  end
  return answer(pcall(tonumber, text, base))
end
function globals.require(name)
  local module = modules[name]
  if not module then
    error('module ' .. sub(shown(name), 1, 64) .. ' not found', 2)
  end
  return module
end
for _, name in ipairs({
  'collectgarbage', 'dofile', 'getfenv', 'getmetatable', 'load', 'loadfile', 'loadstring', 'module', 'newproxy',
  'rawequal', 'rawget', 'rawset', 'setfenv', 'setmetatable',
}) do
  globals[name] = missing(name)
end

return globals, function(run, ...)
  return pcall(run, ...)
end
