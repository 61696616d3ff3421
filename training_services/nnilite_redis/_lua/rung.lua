-- KEYS bell; ARGV an entry that was read. Returns the last entry: whoever rings writes more than one in a moment.
local more = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+')
return #more > 0 and more[#more][1] or ARGV[1]
