"""What becomes of one job, on a platform that exists in the test alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from nnilite.errors import ServiceError
from nnilite.platform_http import CallRefused, Missing, Outage
from nnilite.records import Exited
from nnilite.service import JobState, JobStatus
from nnilite.services.job_log import JobLog
from nnilite.services.job_watch import JobWatch, Patience, SeenJob, keeper_status

HASTE = Patience(log_pause_s=0.0, young_s=0.0, gone_s=0.0, log_lag_s=0.0)
EXIT = b'NNILITE_EVENT {"type": "exit", "time": 9.0, "code": 3, "message": "it failed"}\n'


@dataclass
class Foo:
    """A platform with one job."""

    state: JobState | None = JobState.WAITING
    log: bytes = b""
    kills: int = 0
    soft_ends: int = 0
    trouble: Exception | None = None
    is_stopping: bool = False
    holds: bool = False
    learned: int = 0


class FooLog(JobLog):
    def __init__(self, foo: Foo) -> None:
        super().__init__()
        self.foo = foo

    async def read_on(self) -> None:
        if self.foo.trouble:
            raise self.foo.trouble
        self.add_whole(self.foo.log)


class FooWatch(JobWatch[JobState]):
    platform = "Foo"

    def __init__(self, foo: Foo, patience: Patience = HASTE) -> None:
        super().__init__({"job": "j", "report": "stdout"}, FooLog(foo), patience)
        self.foo = foo
        self.soft_end = self._end_softly

    async def _end_softly(self) -> None:
        self.foo.soft_ends += 1

    async def fetch(self) -> JobState:
        if self.foo.state is None:
            raise Missing("no such job")
        return self.foo.state

    async def learn(self, job: JobState) -> JobState:
        self.foo.learned += 1
        return job

    def interpret(self, job: JobState) -> SeenJob:
        return SeenJob(job, "as Foo says", is_stopping=self.foo.is_stopping, holds=self.foo.holds)

    async def kill(self) -> None:
        self.foo.kills += 1
        if self.foo.trouble:
            raise self.foo.trouble

    def end(self, job: JobState, word: Exited | None) -> JobStatus:
        return keeper_status(word) if word else JobStatus(job, "Foo alone")

    def now(self) -> JobStatus:
        return asyncio.run(self.status({}))


@pytest.fixture
def foo() -> Foo:
    return Foo()


def test_the_keepers_word_comes_first(foo: Foo) -> None:
    watch = FooWatch(foo)
    foo.state = JobState.RUNNING
    assert watch.now().state is JobState.RUNNING
    foo.state, foo.log = JobState.SUCCEEDED, b"hello\n" + EXIT
    end = watch.now()
    assert (end.state, end.exit_code, end.reason) == (JobState.FAILED, 3, "it failed")
    foo.state = None
    assert watch.now() == end


def test_the_end_of_a_log_is_awaited_for_a_while(foo: Foo) -> None:
    watch = FooWatch(foo, Patience(young_s=0.0, log_lag_s=60.0))
    foo.state = JobState.RUNNING
    watch.now()
    foo.state = JobState.FAILED
    assert watch.now().reason == "the job has ended; waiting for the end of its log"
    watch.patience = HASTE
    assert watch.now() == JobStatus(JobState.FAILED, "Foo alone")


@pytest.mark.parametrize(
    ("patience", "state"),
    [(HASTE, JobState.LOST), (Patience(young_s=0.0), JobState.UNKNOWN), (Patience(), JobState.WAITING)],
)
def test_a_job_that_is_not_known_is_lost_in_time(foo: Foo, patience: Patience, state: JobState) -> None:
    watch = FooWatch(foo, patience)
    watch.submitted()
    foo.state = None
    assert watch.now().state is state


def test_a_job_that_waits_again_is_lost(foo: Foo) -> None:
    watch = FooWatch(foo)
    foo.state = JobState.RUNNING
    watch.now()
    foo.state = JobState.WAITING
    assert watch.now().reason == "Foo took the job off its node to start it again: as Foo says"
    assert watch.over is not None


def test_what_a_listing_lacks_is_learned_when_a_job_begins_to_run_and_at_its_end(foo: Foo) -> None:
    watch, learned = FooWatch(foo), []
    for state in (JobState.WAITING, JobState.WAITING, JobState.RUNNING, JobState.RUNNING, JobState.SUCCEEDED):
        foo.state = state
        watch.now()
        learned.append(foo.learned)
    # The first look at a job that waits may be a later manager's, and it may have run under the earlier one.
    assert learned == [1, 1, 2, 2, 3]


def test_a_running_job_is_killed_when_its_time_for_a_soft_end_is_over(foo: Foo) -> None:
    watch = FooWatch(foo)
    foo.state = JobState.RUNNING
    asyncio.run(watch.cancel(3600.0))
    assert (watch.now().reason, foo.soft_ends, foo.kills) == ("the job is being canceled", 1, 0)
    other = FooWatch(foo)
    asyncio.run(other.cancel(1e-9))
    other.now()
    assert foo.kills == 1
    foo.state = JobState.FAILED
    assert other.now().state is JobState.CANCELED


def test_a_job_that_is_not_known_when_it_is_canceled_is_killed_when_it_is_known_again(foo: Foo) -> None:
    watch = FooWatch(foo, Patience(young_s=0.0))
    foo.state = None
    asyncio.run(watch.cancel(60.0))
    foo.state = JobState.RUNNING
    watch.now()
    assert foo.kills == 1


def test_a_kill_that_is_refused_matters_only_if_the_job_goes_on(foo: Foo) -> None:
    foo.state, foo.trouble = JobState.WAITING, CallRefused("not now")
    with pytest.raises(ServiceError, match="not now"):
        asyncio.run(FooWatch(foo).cancel(0.0))
    foo.state = None
    asyncio.run(FooWatch(foo).remove())


def test_a_job_is_not_removed_while_it_goes_on(foo: Foo) -> None:
    with pytest.raises(ServiceError, match="Foo is still stopping the job j"):
        asyncio.run(FooWatch(foo).remove())
    assert foo.kills == 1


def test_a_removal_kills_no_job_that_the_platform_ends_already(foo: Foo) -> None:
    foo.is_stopping = True
    with pytest.raises(ServiceError, match="Foo is still stopping the job j"):
        asyncio.run(FooWatch(foo).remove())
    assert foo.kills == 0


def test_a_removal_kills_a_job_that_has_ended_only_if_it_still_holds_something(foo: Foo) -> None:
    foo.state = JobState.SUCCEEDED
    asyncio.run(FooWatch(foo).remove())
    assert foo.kills == 0
    foo.holds = True
    asyncio.run(FooWatch(foo).remove())
    assert foo.kills == 1


def test_trouble_with_one_job_is_told_of_that_job(foo: Foo) -> None:
    watch = FooWatch(foo)
    foo.state = JobState.RUNNING
    watch.now()
    foo.state, foo.trouble, watch.patience = JobState.FAILED, Outage("Foo is away"), Patience()
    assert watch.now() == JobStatus(JobState.UNKNOWN, "Foo is away")
    watch.patience = HASTE
    assert watch.now().reason == "Foo alone"


def test_an_answer_that_makes_no_sense_is_told_of_its_job(foo: Foo) -> None:
    watch = FooWatch(foo)
    foo.trouble, foo.state = AttributeError("'bool' object has no attribute 'get'"), JobState.FAILED
    watch.ran, watch.patience = True, Patience()
    assert watch.now().state is JobState.UNKNOWN
    assert watch.now().reason.startswith("Foo says of the job what makes no sense (AttributeError: 'bool' object")
    foo.trouble = None
    watch.patience = HASTE
    assert watch.now().reason == "Foo alone"


def test_all_of_a_log_is_told_once_more_at_the_end(foo: Foo) -> None:
    watch = FooWatch(foo)
    foo.state, foo.log = JobState.RUNNING, b"a\n"
    watch.now()
    assert [len(asyncio.run(watch.reports())) for _ in range(2)] == [1, 0]
    foo.state, foo.log = JobState.FAILED, b"a\n" + EXIT
    watch.now()
    assert [len(asyncio.run(watch.reports())) for _ in range(2)] == [2, 0]


def test_a_log_whose_beginning_is_gone_is_read_on(foo: Foo) -> None:
    log = FooLog(foo)
    lines = [f"line {number}\n".encode() for number in range(2000)]
    text = b"".join(lines)
    for piece in (text[:9000], text[:12_003], text[5000:15_001], text[5000:]):
        log.add_whole(piece)
    assert bytes(log.output) == text
    log.add_whole(b"another\n")
    assert bytes(log.output) == text + b"another\n"
