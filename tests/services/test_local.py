"""The local service: the contract of all services, in the user's folder and in copies of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nnilite.testing import ServiceBench, ServiceContract
from nnilite.testing.probes import quoted
from nnilite_local import LocalConfig, LocalService

pytestmark = pytest.mark.process


class TestLocalService(ServiceContract):
    own_copy = False
    pushes = True

    @pytest.fixture
    def make_service(self):
        return lambda context: LocalService("local", LocalConfig(), context)


class TestLocalServiceWithCopies(ServiceContract):
    every_case = False
    pushes = True

    @pytest.fixture
    def make_service(self):
        return lambda context: LocalService("local", LocalConfig(isolate_code=True), context)


@pytest.mark.parametrize(("config", "niceness"), [(LocalConfig(), 0), (LocalConfig(niceness=3), 3)])
def test_trials_step_back_only_if_the_configuration_says_so_and_the_dry_run_shows(
    tmp_path: Path, config: LocalConfig, niceness: int
) -> None:
    with ServiceBench(tmp_path, lambda context: LocalService("local", config, context)) as bench:
        # The keeper sets it once the command has started.
        tell = f"sleep 0.2; nice >> {quoted(bench.mark())}; cat /proc/self/autogroup >> {quoted(bench.mark())} || true"
        bench.finish(bench.run(tell))
        own, *of_session = bench.lines()
        assert int(own) == min(os.getpriority(os.PRIO_PROCESS, 0) + niceness, 19)
        assert [line.split()[-1] for line in of_session] in ([], [str(niceness)])
        assert bench.service.describe(bench.job("true"))["niceness"] == niceness
