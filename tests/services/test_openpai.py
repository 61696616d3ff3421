"""OpenPAI: the contract of all services, on a stand-in that runs jobs and checks requests."""

from __future__ import annotations

import pytest

from nnilite.testing import ServiceContract
from platforms.contract_cases import BATCH_MATTERS
from platforms.pai.bench import bench_on

pytestmark = pytest.mark.process


class TestOpenPaiService(ServiceContract):
    every_case = False
    matters = BATCH_MATTERS
    has_logs = False
    # What a manager has missed that was away for long is read in the job's log: see test_openpai_jobs.
    ends_alone = False

    @pytest.fixture
    def bench(self, tmp_path, pai):
        with bench_on(pai, tmp_path) as bench:
            yield bench
