"""An engine with a real store, a service in memory and a tuner in memory, for tests of the manager itself."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnilite._engine import messages, service_caller
from nnilite._engine.engine import Clock, Engine, EngineParts
from nnilite._engine.jobs import JobMaker
from nnilite._engine.rules import Rules
from nnilite._manager.manager import Manager
from nnilite._manager.manager_parts import ManagerParts, Publisher
from nnilite._store.async_store import AsyncStore
from nnilite._store.reader import Reader
from nnilite._store.writer import Store
from nnilite._views.experiment_facts import ExperimentFacts
from nnilite.errors import TunerError
from nnilite.records import Exited, Json, KeeperEvent, MetricKind, Reported, Started, Trial
from nnilite.service import TrainingService
from nnilite.services.task_ends import end_tasks
from nnilite.testing.fakes import FakeService, fake_context
from nnilite.tuner import Call
from waiting import eventually_async


class FakeTuner:
    """Proposes numbers; answers to the engine as the tuner host does."""

    pid: int | None = None  # it has no process

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.assessed: list[tuple[str, tuple[Json, ...]]] = []
        self.poor: set[str] = set()  # trials that its assessor stops
        self.choice = ""
        self.stop_reason = ""

    async def open(self, after: int) -> bool:
        """Ready at once, and not curious about intermediate results."""
        return False

    async def answers(self, actions: Sequence[messages.TunerCall]) -> AsyncGenerator[Any, None]:
        for action in actions:
            yield self._answer(action)

    def _answer(self, action: messages.TunerCall) -> Any:
        if isinstance(action, messages.Ask):
            return [{"x": number} for number in action.parameter_ids]
        if isinstance(action, messages.Tell):
            self.calls.append(action.call)
        elif isinstance(action, messages.Assess):
            self.assessed.append((action.trial, action.values))
            return action.trial not in self.poor
        return None

    async def try_space(self, space: Json) -> None:
        if "layer" in space:
            raise TunerError("no layers")


@dataclass
class Bench:
    """A running engine and what is around it."""

    engine: Engine
    service: TrainingService
    tuner: FakeTuner
    store: AsyncStore
    manager: Manager
    ended: asyncio.Task[None]
    wake: service_caller.WakeSignal

    @property
    def fake(self) -> FakeService:
        assert isinstance(self.service, FakeService)
        return self.service

    @property
    def live(self) -> list[Trial]:
        return [live.trial for live in self.engine.rules.live.values()]

    async def until(self, condition: Callable[[], Any], timeout_s: float = 10.0) -> None:
        """Poll until it holds; fail at the deadline."""
        try:
            await eventually_async(condition, timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.live}") from None

    async def run_job(self, name: str, value: float = 1.0, code: int = 0) -> None:
        """Be the keeper of a job from its start to its end."""
        _, _, trial, attempt = name.split("-")
        final = Reported(0, MetricKind.FINAL, 0, value, 2.0)
        events: list[KeeperEvent] = [Started(1.0), *([final] if code == 0 else []), Exited(3.0, code)]
        await self.engine.commit_events(trial, int(attempt), events)

    async def run_all(self, trials: int) -> None:
        """Run whatever comes until so many trials have ended."""
        done: set[str] = set()

        def fresh() -> list[str]:
            return [name for name in self.fake.jobs if name not in done]

        def over() -> bool:
            return sum(number for state, number in self.engine.rules.counts.items() if state.ended) >= trials

        while not over():
            for name in fresh():
                done.add(name)
                with contextlib.suppress(Exception):
                    await self.run_job(name)
            await self.until(lambda: fresh() or over())


@contextlib.asynccontextmanager
async def open_bench(
    folder: Path,
    service: Callable[..., TrainingService] = FakeService,
    store: Callable[[Store, Path], AsyncStore] = AsyncStore,
    follow: Collection[str] = (),
    output_cap_bytes: int = 0,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """A running engine with an experiment named `e` of 4 trials, two at a time; it goes on where one was before."""
    wake = service_caller.WakeSignal()
    path = folder / "nnilite.sqlite"
    database = Store.open(path) if path.exists() else Store.create(path, "e", 1.0)
    known = messages.Settings(**{"concurrency": 2, "max_trials": 4, **settings})
    clock = Clock()
    rules = Rules(known, database.resume_reader.snapshot(maximize=True), clock())
    numbers = itertools.count(rules.next_sequence)
    made = service("fake", None, fake_context(folder, wake=wake.ring))
    jobs = JobMaker("e", "secret", "true", "fake", None, 1, 0, 10, folder / "checkpoints")
    tuner, kept = FakeTuner(), store(database, folder)
    publisher = Publisher(rules, (), lambda state, ended: None)
    parts = EngineParts(
        rules, kept, tuner, made, publisher, jobs, lambda: f"t{next(numbers)}", clock, wake, 1.0, follow
    )  # type: ignore[arg-type]
    engine = Engine(replace(parts, output_cap_bytes=output_cap_bytes))
    reader = Reader(database.path)
    about = ExperimentFacts("e", folder, {}, ("fake",), 1.0, True, {}, {"default": "maximize"})
    parts = ManagerParts(engine, jobs, made, kept, tuner, publisher)  # type: ignore[arg-type]
    manager = Manager(about, parts, reader, None)
    task = asyncio.create_task(engine.run())
    try:
        yield Bench(engine, made, tuner, kept, manager, task, wake)
    finally:
        await end_tasks([task])
        reader.close()
        kept.close()


StartBench = Callable[..., Awaitable[Bench]]
"""What the fixture `start_bench` is: it takes the settings of `open_bench`."""
