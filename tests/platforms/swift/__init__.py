"""A real S3 server: OpenStack Swift with its S3 interface, started from Python's package index for the tests."""
