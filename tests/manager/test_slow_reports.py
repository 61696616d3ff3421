"""Trials whose folder or log is slow to read: the others start and end meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from manager.engine_bench import Bench, StartBench
from nnilite._engine import report_reader
from nnilite.records import KeeperEvent, MetricKind, Reported, Started, TrialState
from nnilite.service import Handle
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
