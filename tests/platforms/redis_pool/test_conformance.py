"""The conformance suite, with a real redis-server and a worker on this machine."""

from __future__ import annotations

import pytest

from nnilite.testing import ServiceContract
from nnilite_redis import RedisConfig, RedisService


@pytest.mark.real
class TestRedisService(ServiceContract):
    every_case = False
    pushes = True

    @pytest.fixture
    def make_service(self, shared_server, prefix, start_worker):
        start_worker(shared_server.url, "--processors", "8")
        config = RedisConfig(shared_server.url, prefix=prefix)
        return lambda context: RedisService("redis", config, context)
