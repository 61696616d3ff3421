"""The service of Determined: the contract of all services, with the code from Determined and from the manager."""

from __future__ import annotations

import pytest

from nnilite.testing import ServiceContract
from platforms.contract_cases import BATCH_MATTERS
from platforms.determined.bench import DeterminedBench, maker

pytestmark = pytest.mark.process


class TestDetermined(ServiceContract):
    every_case = False
    matters = BATCH_MATTERS
    has_logs = False  # what trials print comes with their events

    @pytest.fixture
    def make_service(self, master):
        return maker(master)

    @pytest.fixture
    def bench(self, tmp_path, make_service):
        with DeterminedBench(tmp_path, make_service) as bench:
            yield bench
