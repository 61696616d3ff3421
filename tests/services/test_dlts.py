"""The service of DLTS: the contract of all services, on a dashboard that checks what it is asked."""

from __future__ import annotations

import pytest

from nnilite.testing import ServiceContract
from platforms.dlts.bench import DltsBench

pytestmark = pytest.mark.process


class TestDltsService(ServiceContract):
    every_case = False
    has_logs = False  # both streams are in one log, and files go with the container

    @pytest.fixture
    def bench(self, tmp_path, dashboard):
        with DltsBench(tmp_path, dashboard, {"linger_s": 1}) as bench:
            yield bench
