"""The tests that every training service passes, and those of what this one does beyond them."""

import os

import psutil
import pytest
from nnilite_nice import NiceConfig, NiceService

from nnilite.errors import NoCapacity
from nnilite.service import JobState
from nnilite.testing import ServiceBench, ServiceContract, eventually


class TestNiceService(ServiceContract):
    @pytest.fixture
    def make_service(self):
        return lambda context: NiceService("nice", NiceConfig(niceness=5), context)


@pytest.fixture
def bench(tmp_path):
    with ServiceBench(tmp_path, lambda context: NiceService("nice", NiceConfig(slots=1), context)) as bench:
        yield bench


def test_a_job_without_a_slot_waits(bench):
    first = bench.run("sleep 60")
    assert isinstance(bench.refusal(bench.service.submit(bench.job("true"))), NoCapacity)
    bench.call(bench.service.cancel(bench.handles[first]))
    bench.wait(first)
    assert bench.finish(bench.run("true")).exits[0]["code"] == 0


def test_trials_are_nice(bench):
    received = bench.finish(bench.python("import os, nnilite; nnilite.report_final_result(os.nice(0))"))
    assert received.values == [min(os.nice(0) + 10, 19)]  # than the tests, which may be nice themselves


def test_what_a_killed_keeper_leaves_is_ended_and_its_job_is_lost(bench):
    name = bench.run(f"echo $$ > {bench.mark().name}; mv {bench.mark().name} ..; sleep 60")
    folder = bench.service.context.directory / "trials" / name.split("-")[2] / "0"
    [trial] = eventually(lambda: [path.read_text() for path in folder.glob("mark")])
    psutil.Process(int((folder / "pid").read_text())).kill()
    assert bench.wait(name).state is JobState.LOST
    eventually(lambda: has_ended(int(trial)))


def has_ended(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
