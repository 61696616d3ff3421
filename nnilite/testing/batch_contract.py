"""Tests of failures of a batch platform, which every service that is a `BatchService` passes.

    class MyTrouble(BatchTrouble):
        def away(self): ...          # and the other methods, by the stand-in of your platform

    class TestTrouble(BatchContract):
        @pytest.fixture
        def trouble(self, tmp_path):
            with MyStandIn(tmp_path / "platform") as platform, MyBench(tmp_path, platform) as bench:
                yield MyTrouble(bench, platform)

The bench is a `ReadingBench` of a service with a `Patience` of tenths of a second, `call_s` of about one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

import pytest

from nnilite.errors import JobRefused, NniliteError, ServiceError
from nnilite.service import Job, JobState
from nnilite.services.job_log import JobLog
from nnilite.testing.reading_bench import ReadingBench


class BatchTrouble(ABC):
    """Makes a stand-in of the platform misbehave. A `job` is the name that nnilite gave it."""

    words: ClassVar[str] = "not today"
    """What the platform says where it refuses something."""
    odd_state: ClassVar[str] = "Hibernating"
    """A state of the platform that the service does not know."""

    def __init__(self, bench: ReadingBench) -> None:
        self.bench = bench

    @abstractmethod
    def away(self) -> AbstractContextManager[object]:
        """Let nothing answer."""

    @abstractmethod
    def refuse_lists(self, status: int) -> AbstractContextManager[object]:
        """Answer each request for the list of jobs with this status of HTTP and `words`."""

    @abstractmethod
    def refuse_next_job(self, status: int) -> None:
        """Answer the next submission with this status of HTTP and `words`."""

    @abstractmethod
    def lose_next_answer(self) -> None:
        """Take the next job, and break the connection instead of answering."""

    @abstractmethod
    def hold(self) -> AbstractContextManager[object]:
        """Keep new jobs in the queue."""

    @abstractmethod
    def forget(self, job: str) -> None:
        """End a job, and do not know it any more."""

    @abstractmethod
    def take_away(self, job: str) -> None:
        """Take the node of a running job away."""

    @abstractmethod
    def stop(self, job: str) -> None:
        """Stop a job, as another user of the platform does."""

    @abstractmethod
    def pretend(self, job: str, state: str) -> AbstractContextManager[object]:
        """Make the platform report this state for a job."""

    @abstractmethod
    def is_over(self, job: str) -> bool:
        """Return whether a job neither waits nor runs."""


class BatchContract:
    """Requirements beyond those of `ServiceContract`.

    - a platform that does not answer, or refuses a call, says nothing of jobs: they continue, and nothing is lost
    - a submission whose answer is lost is made once
    - what the platform says reaches the user in its own words
    - a job that is lost, taken away, or stopped by others is known as that, and does not run again
    - reports that the log of a job has lost come by the keeper's recap, each once and in order
    """

    refusals: ClassVar[Sequence[int]] = (400, 401, 403, 404, 500, 503)
    """The statuses with which the platform may refuse a list."""

    @pytest.fixture
    def trouble(self) -> BatchTrouble:
        """Yield an open bench, and the platform that misbehaves. To be overridden."""
        raise NotImplementedError("define the fixture trouble")

    @pytest.fixture
    def bench(self, trouble: BatchTrouble) -> ReadingBench:
        """Return an open service and its surroundings."""
        return trouble.bench

    # what says nothing of jobs

    def test_a_list_that_is_refused_ends_no_job(self, bench: ReadingBench, trouble: BatchTrouble) -> None:
        name = _running(bench)
        for status in self.refusals:
            with trouble.refuse_lists(status):
                refusal = _poll_refusal(bench, name)
            assert isinstance(refusal, ServiceError), status
            assert trouble.words in str(refusal)
            assert bench.wait(name, JobState.RUNNING)

    def test_an_outage_loses_nothing(self, bench: ReadingBench, trouble: BatchTrouble) -> None:
        name = bench.run(f"{bench.until('go')}; exit 5")
        bench.wait(name, JobState.RUNNING)
        with trouble.away():
            assert isinstance(_poll_refusal(bench, name), ServiceError)
            bench.give("go")
        assert bench.finish(name).exits[0]["code"] == 5
        assert bench.status(name).exit_code == 5

    def test_a_state_that_is_not_known_is_no_end(self, bench: ReadingBench, trouble: BatchTrouble) -> None:
        name = _running(bench)
        with trouble.pretend(name, trouble.odd_state):
            assert trouble.odd_state in bench.wait(name, JobState.UNKNOWN).reason
        assert bench.wait(name, JobState.RUNNING)

    # submitting

    def test_a_submission_whose_answer_is_lost_is_made_once(self, bench: ReadingBench, trouble: BatchTrouble) -> None:
        job = bench.job(bench.tell("once"))
        trouble.lose_next_answer()
        bench.eventually(lambda: _is_submitted(bench, job))
        assert bench.finish(job.name).exits[0]["code"] == 0
        assert bench.lines() == ["once"]

    def test_a_refused_job_is_told_in_the_words_of_the_platform(
        self, bench: ReadingBench, trouble: BatchTrouble
    ) -> None:
        trouble.refuse_next_job(400)
        refusal = bench.refusal(bench.service.submit(bench.job("true")))
        assert isinstance(refusal, JobRefused)
        assert trouble.words in str(refusal)

    # how jobs end

    def test_a_job_that_waits_says_why_and_can_be_canceled(self, bench: ReadingBench, trouble: BatchTrouble) -> None:
        with trouble.hold():
            name = bench.run("true")
            bench.eventually(lambda: bench.wait(name, JobState.WAITING).reason)
            bench.call(bench.service.cancel(bench.handles[name]))
            assert bench.wait(name).state is JobState.CANCELED
            assert trouble.is_over(name)

    def test_a_job_that_vanishes_is_lost(self, bench: ReadingBench, trouble: BatchTrouble) -> None:
        name = _running(bench)
        trouble.forget(name)
        status = bench.wait(name)
        assert status.state is JobState.LOST
        assert "no longer knows the job" in status.reason

    def test_a_job_whose_node_is_taken_away_is_lost_and_does_not_run_again(
        self, bench: ReadingBench, trouble: BatchTrouble
    ) -> None:
        name = _running(bench)
        trouble.take_away(name)
        status = bench.wait(name)
        assert status.state is JobState.LOST
        assert status.reason
        _remove(bench, name)
        assert trouble.is_over(name)

    def test_a_job_that_is_stopped_on_the_platform_counts_as_canceled(
        self, bench: ReadingBench, trouble: BatchTrouble
    ) -> None:
        name = _running(bench)
        trouble.stop(name)
        assert bench.wait(name).state is JobState.CANCELED

    def test_the_platform_ends_a_trial_that_does_not_hear_of_its_cancellation(
        self, bench: ReadingBench, trouble: BatchTrouble
    ) -> None:
        name = _running(bench, grace_s=0.2, heartbeat_s=0.2)
        bench.receiver.stop()
        bench.call(bench.service.cancel(bench.handles[name]))
        assert bench.wait(name).state is JobState.CANCELED
        assert trouble.is_over(name)
        bench.receiver.start()

    def test_a_running_job_that_is_removed_is_ended(self, bench: ReadingBench, trouble: BatchTrouble) -> None:
        name = _running(bench)
        _remove(bench, name)
        assert trouble.is_over(name)

    # its log

    @pytest.mark.parametrize("lost", [[0], [1, 2], [3], [0, 1, 2, 3]])
    def test_reports_that_the_log_has_lost_come_by_the_recap(
        self, bench: ReadingBench, lost: Sequence[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lose_reports(monkeypatch, lost)
        reports = "".join(f"echo 'intermediate {number}' >> \"$NNILITE_METRICS\"; echo out; " for number in range(3))
        name = bench.run(f"{reports} echo 'final 9' >> \"$NNILITE_METRICS\"", report="stdout", callback=None)
        received = bench.finish(name)
        assert received.values == [0, 1, 2, 9]
        assert [sequence for _, sequence, _ in received.metrics] == [0, 1, 2, 0]
        assert (received.exits[0]["metrics"], len(received.started)) == (4, 1)


def lose_reports(monkeypatch: pytest.MonkeyPatch, numbers: Sequence[int]) -> None:
    """Let all logs lose the lines in which keepers report these numbers."""
    take = JobLog.add_lines
    marks = [b'"index": %d,' % number for number in numbers]

    def take_rest(log: JobLog, lines: Iterable[bytes]) -> None:
        take(log, [line for line in lines if not any(mark in line for mark in marks)])

    monkeypatch.setattr(JobLog, "add_lines", take_rest)


def _running(bench: ReadingBench, **spec: float) -> str:
    name = bench.run("sleep 60", **spec)
    bench.wait(name, JobState.RUNNING)
    return name


def _poll_refusal(bench: ReadingBench, name: str) -> NniliteError | None:
    """Return the error of a poll, once the list of a moment ago does not count any more."""
    return bench.eventually(lambda: bench.refusal(bench.service.poll([bench.handles[name]])))


def _is_submitted(bench: ReadingBench, job: Job) -> bool:
    try:
        bench.submit(job)
    except ServiceError:
        return False
    return True


def _remove(bench: ReadingBench, name: str) -> None:
    bench.eventually(lambda: bench.refusal(bench.service.remove(bench.handles[name])) is None)
