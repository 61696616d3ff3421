"""A deterministic world around the real engine and gate: a disk in trouble, keepers, a platform, callers that give up.

Store and output files are the real ones. Time is the event loop's own: it passes at once when nobody has anything to
do, so that an hour takes no time and every run with the same steps is the same run. A test drives the world step by
step (`hypothesis` chooses the steps) and calls `check` after each.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import random
import selectors
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine_bench import FakeTuner

from nnilite._engine import messages
from nnilite._engine.dedupe import Fenced, GapFound
from nnilite._engine.engine import Engine, EngineParts
from nnilite._engine.gate import BatchAnswer
from nnilite._engine.jobs import JobMaker
from nnilite._engine.rules import Rules
from nnilite._engine.service_caller import WakeSignal
from nnilite._store.async_store import AsyncStore
from nnilite._store.writer import Store
from nnilite.errors import ServiceError, StoreError
from nnilite.records import Exited, ExperimentState, KeeperEvent, MetricKind, Output, Reported, Started
from nnilite.services.task_ends import end_tasks
from nnilite.testing.fakes import FakeService, fake_context
from waiting import pause_async

PRINTED = b"".join(b"%07d\n" % number for number in range(2000))
"""What every trial prints, as far as it comes."""
OTHERWISE = PRINTED.replace(b"0", b"x")
"""What a second run of the same attempt prints."""


class _Selector(selectors.SelectSelector):
    """Lets time pass instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("nothing will ever happen any more")
        self.now_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s


def play(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario in virtual time."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario)
    finally:
        loop.close()


@dataclass
class Disk:
    """How well the manager's disk is. Delays are up to `slow_s` for each use; `failing`: the chance of an error."""

    luck: random.Random
    slow_s: float = 0.0
    failing: float = 0.0

    def delay_s(self) -> float:
        return self.luck.uniform(0, self.slow_s)

    def fails(self) -> bool:
        return self.luck.random() < self.failing


class TroubledStore(AsyncStore):
    """The real store on such a disk. As with its thread, one thing is done at a time, and nobody who waits for it
    can stop it."""

    def __init__(self, store: Store, directory: Path, disk: Disk) -> None:
        super().__init__(store, directory)
        self._disk = disk
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()

    async def _run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        task = asyncio.ensure_future(self._one(work, arguments))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _one(self, work: Callable[..., Any], arguments: Any) -> Any:
        async with self._turn:
            await pause_async(self._disk.delay_s(), "so slow is the disk")
            if self._disk.fails():
                self._fail(work, arguments)
            result = work(*arguments)
            await pause_async(self._disk.delay_s(), "so slow is the disk")
            return result

    def _fail(self, work: Callable[..., Any], arguments: Any) -> None:
        if work == self._write_output:
            self._tear(arguments)
            raise OSError(errno.ENOSPC, "No space left on device")
        if work == self._measure_output:
            raise OSError(errno.EIO, "Input/output error")
        raise StoreError("the disk is full", busy=True)  # SQLite takes back what it had begun

    def _tear(self, arguments: Any) -> None:
        key, chunks, _ = arguments
        torn = chunks[: self._disk.luck.randrange(len(chunks) + 1)]
        if torn:
            cut = self._disk.luck.randrange(len(torn[-1].data) + 1)
            self._write_output(key, [*torn[:-1], replace(torn[-1], data=torn[-1].data[:cut])], False)

    async def crash(self) -> None:
        """kill -9: what was under way may have come to its end, or not, or in part."""
        self._disk.failing, self._disk.slow_s = self._disk.luck.choice((0.0, 0.5, 1.0)), 0.0
        for task in list(self._under_way):
            if self._disk.luck.random() < 0.5:
                task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self.close()


@dataclass
class Keeper:
    """The truth about one attempt, and what its manager has acknowledged."""

    trial: str
    attempt: int
    metrics: int = 0
    printed: int = 0
    end: Exited | None = None
    fenced: bool = False
    cursor: tuple[int, int] = (0, 0)  # metrics, output: where the next batch begins
    told: tuple[int, int, bool] = (0, 0, False)  # metrics, output and end that are acknowledged
    is_second: bool = False  # a fault has started the attempt twice, and this is the other run

    @property
    def run(self) -> str:
        return "second" if self.is_second else "first"

    @property
    def text(self) -> bytes:
        return OTHERWISE if self.is_second else PRINTED

    def values(self, count: int) -> list[float]:
        return [number / 2 + 1000 * self.is_second for number in range(count)]

    def _metrics(self, first: int, last: int) -> list[KeeperEvent]:
        values = self.values(last)
        return [Reported(n, MetricKind.PERIODICAL, n, values[n], 1.0, run=self.run) for n in range(first, last)]

    def batch(self, metrics: int, size: int) -> list[KeeperEvent]:
        """As a keeper's outbox makes it: the end comes with what leaves nothing behind."""
        first, at = self.cursor
        last, end = min(first + metrics, self.metrics), min(at + size, self.printed)
        events: list[KeeperEvent] = [Started(1.0, run=self.run), *self._metrics(first, last)]
        events += [Output("stdout", at, self.text[at:end], self.run)] if end > at else []
        if self.end is not None and (last, end) == (self.metrics, self.printed):
            events.append(self.end)
        return events

    def everything(self) -> list[KeeperEvent]:
        """What its service can read by itself."""
        return [Started(1.0, run=self.run), *self._metrics(0, self.metrics), *([self.end] if self.end else [])]

    def accept(self, batch: Sequence[KeeperEvent], answer: BatchAnswer) -> None:
        output = answer.output.get("stdout", 0)
        self.cursor = (min(answer.metrics, self.metrics), min(output, self.printed))
        ended = self.told[2] or any(isinstance(event, Exited) for event in batch)
        self.told = (max(self.told[0], answer.metrics), max(self.told[1], output), ended)


class Platform(FakeService):
    """Outlives managers. What a keeper has written can be read by it."""

    keepers: dict[str, Keeper]
    # How many of the next submissions are taken without an answer.
    silent: int = 0

    async def submit(self, job: Any) -> Any:
        handle = await super().submit(job)
        self.keepers.setdefault(job.name, Keeper(job.trial, job.attempt))
        if self.silent:
            self.silent -= 1
            raise ServiceError("no answer")
        return handle

    async def reports(self, handle: Any) -> Any:
        return self.keepers[str(handle["job"])].everything()


class Watched:
    """What was committed."""

    def committed(self, records: Sequence[messages.Record]) -> None:
        """Nobody watches."""


@dataclass
class World:
    """Every public method but `open`, `check`, `run_out` and `close` is a step."""

    folder: Path
    luck: random.Random
    settings: messages.Settings
    disk: Disk = field(init=False)
    keepers: dict[str, Keeper] = field(default_factory=dict)
    second_runs: dict[str, Keeper] = field(default_factory=dict)
    calls: list[asyncio.Task[None]] = field(default_factory=list)  # callbacks under way
    stopped_s: float = 0.0
    ids: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.disk = Disk(self.luck)
        self.platform = Platform("fake", None, fake_context(self.folder, wake=lambda: self._wake.ring()))
        self.platform.keepers = self.keepers
        self._database = Store.create(self.folder / "nnilite.sqlite", "e", 1.0)
        self._reader = sqlite3.connect(self.folder / "nnilite.sqlite")

    async def open(self) -> None:
        """Start a manager."""
        loop = asyncio.get_running_loop()
        rules = Rules(self.settings, self._database.resume_reader.snapshot(maximize=True), self._now())
        jobs = JobMaker("e", "secret", "true", "fake", None, 1, 0, 10, self.folder / "checkpoints")
        self.store = TroubledStore(self._database, self.folder, self.disk)
        self._wake = WakeSignal()
        parts = (rules, self.store, FakeTuner(), self.platform, Watched(), jobs, lambda: f"t{next(self.ids)}")
        self.engine = Engine(EngineParts(*parts, self._now, self._wake, 1.0))  # type: ignore[arg-type]
        self._task = loop.create_task(self.engine.run())

    def _now(self) -> float:
        return 1000.0 + asyncio.get_running_loop().time() + self.stopped_s

    async def close(self) -> None:
        await end_tasks([self._task, *self.calls, *self.engine.gate.works])
        self._reader.close()
        self.store.close()

    # ------------------------------------------------------------ steps

    def _keeper(self, index: int, alive: bool = True) -> Keeper | None:
        found = [k for k in self._runs() if not (alive and k.end)]
        return found[index % len(found)] if found else None

    def _runs(self) -> list[Keeper]:
        return [*self.keepers.values(), *self.second_runs.values()]

    async def run_twice(self, index: int) -> None:
        """A fault starts an attempt once more, on another machine: its platform knows one of the two runs."""
        if self.keepers:
            name, first = list(self.keepers.items())[index % len(self.keepers)]
            self.second_runs.setdefault(name, Keeper(first.trial, first.attempt, is_second=True))

    async def report(self, index: int, metrics: int, size: int) -> None:
        if keeper := self._keeper(index):
            keeper.metrics += metrics
            keeper.printed = min(keeper.printed + size, len(PRINTED))

    async def end(self, index: int, code: int) -> None:
        """A command ends; its platform sees it, too."""
        if keeper := self._keeper(index):
            keeper.end = Exited(2.0, code, run=keeper.run)
            name = f"nni-e-{keeper.trial}-{keeper.attempt}"
            if not keeper.is_second and not self.platform.jobs[name].status.state.ended:
                self.platform.jobs[name].finish(code)

    async def lose(self, index: int) -> None:
        """Its platform has lost it, and cannot tell what it had reported."""
        keeper = self._keeper(index)
        if keeper is not None and not keeper.is_second:
            keeper.end = Exited(2.0, 1, run=keeper.run)
            self.platform.jobs[f"nni-e-{keeper.trial}-{keeper.attempt}"].lose()

    async def deliver(self, index: int, metrics: int, size: int) -> None:
        """A callback, of which nobody awaits the end here; perhaps a second one of the same keeper."""
        if keeper := self._keeper(index, alive=False):
            self.calls.append(asyncio.ensure_future(self._deliver(keeper, metrics, size)))

    async def _deliver(self, keeper: Keeper, metrics: int, size: int) -> None:
        batch = keeper.batch(metrics, size)
        try:
            answer = await self.engine.commit_events(keeper.trial, keeper.attempt, batch)
        except Fenced:
            keeper.fenced = True
        except GapFound:
            keeper.cursor = (0, 0)
        except (StoreError, ServiceError):
            return  # it keeps what it has, and tries again
        else:
            keeper.accept(batch, answer)

    async def give_up(self, index: int) -> None:
        """A caller does not wait any longer."""
        waiting = [call for call in self.calls if not call.done()]
        if waiting:
            waiting[index % len(waiting)].cancel()

    async def trouble(self, slow_s: float, failing: float) -> None:
        self.disk.slow_s, self.disk.failing = slow_s, failing

    async def poll(self) -> None:
        self._wake.ring()

    async def silence(self, submissions: int) -> None:
        """The platform takes jobs and does not answer: a keeper may report its end before the service has the job."""
        self.platform.silent = submissions

    async def pass_time(self, seconds: float) -> None:
        await pause_async(seconds, "it is what this step is")

    async def be_stopped(self, seconds: float) -> None:
        """The manager's process does not live for a while."""
        self.stopped_s += seconds

    async def crash(self) -> None:
        await end_tasks([self._task, *self.calls, *self.engine.gate.works])
        await self.store.crash()
        self.calls.clear()
        await self.trouble(0.0, 0.0)
        self._database = Store.open(self.folder / "nnilite.sqlite")
        await self.open()

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        """What a keeper was told is stored, is stored, once and in order."""
        if self._task.done():
            self._task.result()
        for call in [call for call in self.calls if call.done()]:
            self.calls.remove(call)
            with contextlib.suppress(asyncio.CancelledError):
                call.result()
        for name, first in self.keepers.items():
            second = self.second_runs.get(name)
            owners = [run for run in (first, second) if run is not None and run.told != (0, 0, False)]
            assert len(owners) < 2, "of two runs of one attempt something was taken"
            metrics, printed, ended = self.stored(first)
            # Before anything is acknowledged, what is stored may be of either run.
            possible = owners or [first, *([second] if second else [])]
            assert any(self._is_of(run, metrics, printed) for run in possible), "two runs are mixed"
            for run in owners:
                assert run.told[0] <= len(metrics) <= run.metrics, "a metric is missing, or was never reported"
                assert run.told[1] <= len(printed) <= run.printed, "output is missing, or was never printed"
                assert ended or run.fenced or not run.told[2], "an end was acknowledged that is not stored"

    @staticmethod
    def _is_of(run: Keeper, metrics: list[float], printed: bytes) -> bool:
        """Return whether all of this was reported by the run, once and in order."""
        return metrics == run.values(len(metrics)) and run.text.startswith(printed)

    def stored(self, keeper: Keeper) -> tuple[list[float], bytes, bool]:
        at = "(SELECT sequence FROM trials WHERE id = ?)"
        key = (keeper.trial, keeper.attempt)
        values = self._reader.execute(
            f"SELECT value FROM metrics WHERE trial = {at} AND attempt = ? ORDER BY idx", key
        ).fetchall()
        ends = self._reader.execute(
            f"SELECT state, reported_end FROM attempts WHERE trial = {at} AND number = ?", key
        ).fetchall()
        path = self.folder / "trials" / keeper.trial / str(keeper.attempt) / "trial.stdout"
        printed = path.read_bytes() if path.exists() else b""
        ended = any(end or state in ("SUCCEEDED", "FAILED", "CANCELED", "LOST") for state, end in ends)
        return [float(value) for (value,) in values], printed, ended

    async def run_out(self) -> None:
        """All is well from here on, until nothing is left to do."""
        await self.trouble(0.0, 0.0)
        await self.silence(0)
        for _ in range(100):
            over = self.engine.rules.state is ExperimentState.DONE
            for index in range(len(self._runs())):
                await self.end(index, 0)
            for keeper in [keeper for keeper in self._runs() if not keeper.fenced]:
                await asyncio.wait([asyncio.ensure_future(self._deliver(keeper, 1000, len(PRINTED)))], timeout=60.0)
            self.check()
            if over:
                return
            await pause_async(5.0, "virtual, until the next poll")
        raise AssertionError(f"it does not come to its end: {[live.trial for live in self.engine.rules.live.values()]}")
