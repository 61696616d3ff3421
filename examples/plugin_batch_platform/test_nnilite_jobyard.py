"""The tests that every training service passes, those of batch platforms, and what this one does beyond them."""

import contextlib
import json

import pytest
from jobyard import TOKEN, Jobyard
from nnilite_jobyard import JobyardConfig, JobyardService

from nnilite.errors import ConfigError
from nnilite.services.job_watch import Patience
from nnilite.testing import BatchContract, BatchTrouble, ReadingBench, ServiceContract


class QuickJobyard(JobyardService):
    """Does not wait long between questions. A cancellation reaches the keeper as a manager tells it."""

    patience = Patience(0.05, 0.05, young_s=0.5, gone_s=0.5, log_lag_s=3.0, soft_extra_s=0.0, call_s=0.7)
    bench = None

    async def cancel(self, handle):
        if handle["job"] in self.bench.receiver.jobs:
            self.bench.received(handle["job"]).cancel = True
        await super().cancel(handle)


class JobyardBench(ReadingBench):
    """With keepers that do not wait long for a manager."""

    def __init__(self, folder, yard, report="rest", **fields):
        common = {"report": "stdout"} if report == "stdout" else {"linger_s": 1}
        given = {"host": yard.url, "token": TOKEN, "nni_manager_ip": "127.0.0.1", **fields}
        super().__init__(folder, lambda context: self.made(JobyardConfig(**given), context), **common)
        self.report_by = report

    def made(self, config, context):
        service = QuickJobyard("jobyard", config, context)
        service.bench = self
        return service

    @property
    def calls_back(self):
        return self.report_by == "rest"


@pytest.fixture
def yard(tmp_path):
    with Jobyard(tmp_path / "yard") as yard:
        yield yard


@pytest.fixture
def bench(tmp_path, yard):
    with JobyardBench(tmp_path, yard) as bench:
        yield bench


class JobyardTrouble(BatchTrouble):
    """What can go wrong on Jobyard."""

    def __init__(self, bench, yard):
        super().__init__(bench)
        self.yard = yard

    @contextlib.contextmanager
    def away(self):
        self.yard.listener.stop()
        yield
        self.yard.listener.start()

    @contextlib.contextmanager
    def refuse_lists(self, status):
        self.yard.refusals = [("GET", 1, status)]
        yield
        self.yard.refusals = []

    def refuse_next_job(self, status):
        self.yard.refusals = [("PUT", 2, status)]

    def lose_next_answer(self):
        self.yard.loses_answers = 1

    @contextlib.contextmanager
    def hold(self):
        self.yard.has_room = False
        yield
        self.yard.has_room = True

    def forget(self, job):
        self.yard.jobs.pop(job).end()

    def take_away(self, job):
        self.yard.jobs[job].stop("evicted")

    def stop(self, job):
        self.yard.jobs[job].stop()

    @contextlib.contextmanager
    def pretend(self, job, state):
        self.yard.jobs[job].pretended = state
        yield
        self.yard.jobs[job].pretended = ""

    def is_over(self, job):
        return job not in self.yard.jobs or self.yard.jobs[job].ended


class TestJobyard(ServiceContract):
    has_logs = False  # the log has both streams in one

    @pytest.fixture
    def bench(self, bench):
        return bench


class TestJobyardTrouble(BatchContract):
    @pytest.fixture
    def trouble(self, bench, yard):
        return JobyardTrouble(bench, yard)


def test_a_wrong_token_is_refused_at_its_field(tmp_path, yard):
    with pytest.raises(ConfigError) as refused, JobyardBench(tmp_path, yard, token="wrong"):
        pass
    assert refused.value.place.field == "token"


def test_reports_and_code_come_by_the_log_where_no_trial_reaches_the_manager(tmp_path, yard):
    with JobyardBench(tmp_path, yard, report="stdout") as bench:
        bench.put_code(**{"mod.py": "VALUE = 7"})
        name = bench.python("import mod, nnilite; print('seen'); nnilite.report_final_result(mod.VALUE)")
        received = bench.finish(name)
        assert received.values == [7]
        assert received.output["stdout"] == b"seen\n"
        assert bench.call(bench.service.logs(bench.handles[name], "stdout", 0, 100)) == b"seen\n"
        assert bench.received(name).token not in json.dumps(yard.jobs[name].body)
