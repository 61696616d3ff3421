"""Trials whose folder or log is slow to read: the others start and end meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from manager.engine_bench import Bench, StartBench
from nnilite._engine import report_reader
from nnilite._engine.dedupe import GapFound
from nnilite.records import KeeperEvent, MetricKind, Reported, Started, TrialState
from nnilite.service import Handle, JobState, JobStatus
from nnilite.testing import fakes

FINAL = Reported(0, MetricKind.FINAL, 0, 7.0, 2.0)


class SlowToRead(fakes.FakeService):
    """What the first trial has left comes once the test says so."""

    reports_aside = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.answer = asyncio.Event()
        self.reading = 0

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        if str(handle["job"]).startswith("nni-e-t0-"):
            self.reading += 1
            await self.answer.wait()
        return await super().reports(handle)


@pytest.fixture(autouse=True)
def patient(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The poll waits only for a moment."""
    monkeypatch.setattr(report_reader, "_POLL_WAITS_S", 0.05)


async def until_read(bench: Bench) -> SlowToRead:
    """Let the first trial end, and its reports be asked for."""
    service = bench.service
    assert isinstance(service, SlowToRead)
    await bench.until(lambda: "nni-e-t0-0" in service.jobs)
    service.jobs["nni-e-t0-0"].events = [Started(1.0), FINAL]
    service.jobs["nni-e-t0-0"].finish()
    await bench.until(lambda: service.reading)
    return service


async def test_other_trials_start_and_end_while_the_reports_of_one_are_slow_to_read(start_bench: StartBench) -> None:
    bench = await start_bench(service=SlowToRead)
    service = await until_read(bench)
    for name in ("nni-e-t1-0", "nni-e-t2-0", "nni-e-t3-0"):
        await bench.until(partial(service.jobs.__contains__, name))
        await bench.run_job(name)
    assert [trial.id for trial in bench.live] == ["t0"]
    service.answer.set()
    await bench.until(lambda: bench.engine.rules.best is not None and not bench.live)
    assert bench.engine.rules.best is not None
    assert (bench.engine.rules.best.value, service.reading) == (7.0, 1)


async def test_a_trial_whose_log_is_slow_to_read_is_seen_to_run(start_bench: StartBench) -> None:
    bench = await start_bench(service=SlowToRead, follow={"fake"})
    service = bench.service
    assert isinstance(service, SlowToRead)
    await bench.until(lambda: "nni-e-t0-0" in service.jobs)
    service.jobs["nni-e-t0-0"].start()
    await bench.until(lambda: bench.engine.rules.live["t0"].trial.state is TrialState.RUNNING)
    assert service.reading == 1


class LeavesGap:
    """A service each of whose readings has one event more, and the first one never comes; and an engine for it."""

    name = "fake"
    reports_aside = False

    def __init__(self) -> None:
        self.number = 0
        self.waiting: list[int] = []

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        self.number += 1
        return [Reported(self.number, MetricKind.PERIODICAL, self.number, 7.0, 2.0)]

    async def commit_events(self, *key: object, **_: object) -> None:
        *_, events, over_gaps = key
        self.waiting.append(len(events))
        if not over_gaps:
            raise GapFound

    def now(self) -> float:
        return 0.0

    def put(self, message: object) -> None:
        return None


async def test_what_comes_after_a_gap_does_not_wait_in_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_reader, "_MOST_UNTAKEN_BYTES", 5_000)
    both: Any = LeavesGap()
    reader = report_reader.ReportReader(both, both)
    attempt: Any = SimpleNamespace(trial="t0", number=0)
    for _ in range(20):
        await reader.hand_over(attempt, {}, JobStatus(JobState.RUNNING))
    assert 9 < max(both.waiting) < 13
    assert both.number > 20


async def test_reports_that_cannot_be_accepted_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    both: Any = LeavesGap()
    reader = report_reader.ReportReader(both, both)
    attempt: Any = SimpleNamespace(trial="t0", number=0)
    for state in (JobState.RUNNING, JobState.RUNNING, JobState.SUCCEEDED):
        await reader.hand_over(attempt, {}, JobStatus(state))
    assert [record.message for record in caplog.records] == [
        "cannot accept the reports of trial t0: something is missing before them"
    ]
    assert not reader._complaints
