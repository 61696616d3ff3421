"""The local service: the contract of all services, in the user's folder and in copies of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nnilite.testing import ServiceBench, ServiceContract
from nnilite_local import LocalConfig, LocalService

pytestmark = pytest.mark.process


class TestLocalService(ServiceContract):
    own_copy = False

    @pytest.fixture
    def make_service(self):
        return lambda context: LocalService("local", LocalConfig(), context)


class TestLocalServiceWithCopies(ServiceContract):
    every_case = False

    @pytest.fixture
    def make_service(self):
        return lambda context: LocalService("local", LocalConfig(isolate_code=True), context)


@pytest.mark.parametrize(("config", "niceness"), [(LocalConfig(), 0), (LocalConfig(niceness=3), 3)])
def test_trials_step_back_only_if_the_configuration_says_so_and_the_dry_run_shows(
    tmp_path: Path, config: LocalConfig, niceness: int
) -> None:
    with ServiceBench(tmp_path, lambda context: LocalService("local", config, context)) as bench:
        name = bench.run(f"{bench.tell('$$')}; sleep 60")
        bench.eventually(lambda: bench.received(name).started)  # by now the keeper has set it
        pid = int(bench.eventually(bench.lines)[0])
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + niceness, 19)
        of_session = Path(f"/proc/{pid}/autogroup")
        # The system may refuse it for a moment, and the keeper tries again.
        bench.eventually(lambda: not of_session.exists() or of_session.read_text().split()[-1] == str(niceness))
        assert bench.service.describe(bench.job("true"))["niceness"] == niceness
