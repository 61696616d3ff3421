"""A real Grid Engine for tests: Debian's own, in a folder of its own."""
