"""The contract of all services."""

from __future__ import annotations

import pytest

from nnilite.testing import ServiceContract
from platforms.contract_cases import BATCH_MATTERS
from platforms.ray_cluster.bench import RayBench
from platforms.ray_cluster.cluster import TOKEN


class TestOnTheStandIn(ServiceContract):
    every_case = False
    matters = BATCH_MATTERS | {"test_canceling_twice_or_after_the_end_is_harmless"}  # it cancels by itself
    has_logs = False  # both streams are in one log, and files go with the job

    @pytest.fixture
    def bench(self, tmp_path, head):
        with RayBench(tmp_path, head.url) as bench:
            yield bench


@pytest.mark.real
@pytest.mark.xdist_group("ray")
@pytest.mark.timeout(300)
class TestOnRealRay(ServiceContract):
    every_case = False
    has_logs = False  # both streams are in one log, and files go with the job

    @pytest.fixture
    def bench(self, tmp_path, real_ray):
        with RayBench(tmp_path, real_ray.url, token=TOKEN, entrypoint_num_cpus=0.1) as bench:
            bench.limit_s = 60
            yield bench
