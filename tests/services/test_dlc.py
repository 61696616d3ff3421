"""PAI-DLC: the contract of all services, with reports by REST, by the log, and with a storage."""

from __future__ import annotations

import pytest

from nnilite.testing import ServiceContract
from platforms.contract_cases import BATCH_MATTERS
from platforms.dlc.bench import DlcBench
from platforms.dlc.server import NAS, DlcServer

pytestmark = pytest.mark.process


@pytest.fixture
def server(tmp_path):
    with DlcServer(tmp_path / "dlc") as server:
        yield server
    assert server.broken + server.dlc.broken == []


class TestDlc(ServiceContract):
    every_case = False
    matters = BATCH_MATTERS
    most_characters = 100_000  # DLC limits a job to 64 kB, keeper included
    has_logs = False  # both streams are in one log, and files go with the pod

    @pytest.fixture
    def bench(self, tmp_path, server):
        with DlcBench(tmp_path, server) as bench:
            yield bench


class TestDlcByLog(ServiceContract):
    most_characters = 100_000
    has_logs = False
    pytestmark = [pytest.mark.long]

    @pytest.fixture
    def bench(self, tmp_path, server):
        with DlcBench(tmp_path, server, by_log=True) as bench:
            yield bench


class TestDlcWithStorage(ServiceContract):
    has_logs = False
    pytestmark = [pytest.mark.long]

    @pytest.fixture
    def bench(self, tmp_path, server):
        storage = tmp_path / "storage"
        storage.mkdir()
        place = {"local_storage_mount_point": storage, "container_storage_mount_point": str(storage)}
        with DlcBench(tmp_path, server, nas_data_source_id=NAS, **place) as bench:
            yield bench
