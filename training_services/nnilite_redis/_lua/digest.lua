-- KEYS file. Returns the digest of all of it: readers take it in pieces, between which it may be replaced.
return redis.sha1hex(redis.call('GET', KEYS[1]) or '')
