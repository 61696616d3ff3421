-- KEYS a set or a hash; ARGV SMEMBERS or HGETALL, the most entries, the most bytes of one and of all
return listed(ARGV[1], KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
