"""The conformance suite on a real Grid Engine, whose only node is this machine."""

from __future__ import annotations

import pytest

from nnilite.testing import ServiceContract
from platforms.contract_cases import KIND_MATTERS
from platforms.folder_bench import FolderBench


@pytest.mark.real
@pytest.mark.timeout(180)
class TestBatchServiceOnGridEngine(ServiceContract):
    every_case = False
    matters = KIND_MATTERS  # the way into a job is that of Slurm, where all cases run

    @pytest.fixture
    def make_service(self, maker):
        return maker()


@pytest.mark.real
@pytest.mark.long
@pytest.mark.timeout(180)
class TestBatchServiceByFolders(ServiceContract):
    @pytest.fixture
    def bench(self, tmp_path, maker):
        with FolderBench(tmp_path, maker(nni_manager_ip=None), report="stdout") as bench:
            yield bench
