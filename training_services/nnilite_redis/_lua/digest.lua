-- KEYS file; ARGV the first and the last byte of a piece. Returns the digest of that: the file may have been replaced.
return redis.sha1hex(redis.call('GETRANGE', KEYS[1], ARGV[1], ARGV[2]))
