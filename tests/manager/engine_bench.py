"""An engine with a real store, a service in memory and a tuner in memory, for tests of the manager itself."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nnilite._manager import service_desk
from nnilite._manager import steps as s
from nnilite._manager.app import Machinery, Manager
from nnilite._manager.engine import Clock, Engine, Parts, end_tasks
from nnilite._manager.jobs import JobMaker
from nnilite._manager.ledger import StoreLedger
from nnilite._manager.reader import Reader
from nnilite._manager.reading import About
from nnilite._manager.rules import Rules
from nnilite._manager.store import Store
from nnilite.errors import TunerError
from nnilite.records import Exited, Json, KeeperEvent, MetricKind, Reported, Started, Trial
from nnilite.service import TrainingService
from nnilite.testing.fakes import FakeService, fake_context
from nnilite.tuner import Call


class FakeTuner:
    """Proposes numbers; answers to the engine as the tuner host does."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.assessed: list[tuple[str, tuple[Json, ...]]] = []
        self.poor: set[str] = set()  # trials that its assessor stops

    async def open(self, after: int) -> None:
        """Ready at once."""

    async def generate(self, ids: tuple[int, ...], after: int) -> list[Json]:
        return [{"x": number} for number in ids]

    async def tell(self, number: int, call: Call) -> None:
        self.calls.append(call)

    async def assess(self, action: s.Assess) -> bool:
        self.assessed.append((action.trial, action.values))
        return action.trial not in self.poor

    async def assess_end(self, trial: str, success: bool, after: int) -> None:
        """Nothing to learn."""

    async def try_space(self, space: Json) -> None:
        if "layer" in space:
            raise TunerError("no layers")


class Watched:
    """What was committed."""

    def committed(self, records: Sequence[s.Record]) -> None:
        """Nobody watches."""


@dataclass
class Bench:
    """A running engine and what is around it."""

    engine: Engine
    service: TrainingService
    tuner: FakeTuner
    ledger: StoreLedger
    manager: Manager
    ended: asyncio.Task[None]

    @property
    def fake(self) -> FakeService:
        assert isinstance(self.service, FakeService)
        return self.service

    @property
    def live(self) -> list[Trial]:
        return [live.trial for live in self.engine.rules.live.values()]

    async def until(self, condition: Callable[[], Any], timeout_s: float = 10.0) -> None:
        """Poll until it holds; fail at the deadline."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, f"not so within {timeout_s} s: {self.live}"
            await asyncio.sleep(0.005)

    async def run_job(self, name: str, value: float = 1.0, code: int = 0) -> None:
        """Be the keeper of a job from its start to its end."""
        _, _, trial, attempt = name.split("-")
        final = Reported(0, MetricKind.FINAL, 0, value, 2.0)
        events: list[KeeperEvent] = [Started(1.0), *([final] if code == 0 else []), Exited(3.0, code)]
        await self.engine.take(trial, int(attempt), events)

    async def run_all(self, trials: int) -> None:
        """Run whatever comes until so many trials have ended."""
        done: set[str] = set()
        while sum(self.engine.rules.counts[state] for state in self.engine.rules.counts if state.ended) < trials:
            for name in [name for name in self.fake.jobs if name not in done]:
                done.add(name)
                with contextlib.suppress(Exception):
                    await self.run_job(name)
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses, in each module that imports it."""
    monkeypatch.setattr(service_desk, "POLL_EVERY_S", 0.05)
    monkeypatch.setattr(service_desk, "CALL_TIMEOUT_S", 0.3)
    monkeypatch.setattr(service_desk, "SUBMIT_TIMEOUT_S", 0.3)
    monkeypatch.setattr(service_desk, "_LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr("nnilite._manager.live._LONGEST_RETRY_DELAY_S", 0.05)
    monkeypatch.setattr("nnilite._manager.engine._TICK_S", 0.05)


@contextlib.asynccontextmanager
async def bench(
    folder: Path,
    service: Callable[..., TrainingService] = FakeService,
    ledger: Callable[[Store, Path], StoreLedger] = StoreLedger,
    follow: bool = False,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """A running engine with an experiment named `e` of 4 trials, two at a time; it goes on where one was before."""
    late: list[Engine] = []
    store = Store(folder / "nnilite.sqlite")
    if store.path.exists():
        store.open()
    else:
        store = Store.create(store.path, "e", 1.0)
    known = s.Settings(**{"concurrency": 2, "max_trials": 4, **settings})
    clock = Clock()
    rules = Rules(known, store.snapshot(maximize=True), clock())
    numbers = itertools.count(rules.next_sequence)
    made = service("fake", None, fake_context(folder, wake=lambda: late[0].desk.wake()))
    jobs = JobMaker("e", "secret", "true", "fake", None, 1, 0, 10, folder / "checkpoints")
    tuner, kept = FakeTuner(), ledger(store, folder)
    parts = Parts(rules, kept, tuner, made, Watched(), jobs, lambda: f"t{next(numbers)}", clock, 1.0, follow)  # type: ignore[arg-type]
    late.append(Engine(parts))
    reader = Reader(store.path)
    about = About("e", folder, {}, ("fake",), 1.0, True, {})
    machinery = Machinery(late[0], jobs, made, kept, tuner)  # type: ignore[arg-type]
    manager = Manager(about, machinery, reader, None)
    task = asyncio.create_task(late[0].run())
    try:
        yield Bench(late[0], made, tuner, kept, manager, task)
    finally:
        await end_tasks([task])
        reader.close()
        kept.close()


Scenario = Callable[[Bench], Coroutine[Any, Any, None]]


def play(folder: Path, scenario: Scenario, **more: Any) -> None:
    """Run a scenario on a bench of its own."""

    async def run() -> None:
        async with bench(folder, **more) as running:
            await scenario(running)

    asyncio.run(run())
