"""Trials start, end and run again in any order, while deletes are slow, fail, are canceled, or the manager restarts."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nnilite._checkpoints.checkpoint_folders import CheckpointFolders
from nnilite._checkpoints.checkpoint_rule import CheckpointRule
from nnilite._checkpoints.checkpoint_tidying import CheckpointTidier, make_after_tidying
from nnilite._engine import messages
from nnilite.errors import NoCapacity
from nnilite.records import Attempt, Trial, TrialState
from waiting import others_turn

NAMES = "ab"
OPS = ["begin", "begin", "end", "best", "commit", "commit", "fail", "cancel", "resume", *["step"] * 5]


class World:
    """A tidier whose every blocking step waits for `step`. Files are checked after each operation."""

    def __init__(self, folder: Path, rule: CheckpointRule) -> None:
        self.folder, self.rule = folder, rule
        self.rules: Any = SimpleNamespace(live={}, best=None)
        self.trials = {name: Trial(name, 0, {}, state=TrialState.WAITING, attempt=-1) for name in NAMES}
        self.uncommitted: list[Trial] = []
        self.durable: dict[str, Trial] = {}
        self.waiting: list[asyncio.Future[bool]] = []
        self.must_exist: dict[str, set[Path]] = {}
        self.at_end: dict[str, set[Path]] = {}
        self.starting: set[str] = set()
        self.written = 0
        self.restart()

    def restart(self) -> None:
        ended = [(name, trial.attempt) for name, trial in self.durable.items() if trial.state.ended]
        place = CheckpointFolders(self.folder)
        self.tidier = CheckpointTidier(self.rules, self.rule, place, ended, blocking=self.blocking)
        self.start = make_after_tidying([self.tidier], lambda trial, attempt: None)  # type: ignore[arg-type, return-value]
        self.task = asyncio.ensure_future(self.tidier.tidy_up())

    async def blocking(self, work: Callable[[], Any]) -> Any:
        async def in_time() -> Any:
            gate: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self.waiting.append(gate)
            if not await gate:
                raise OSError(5, "it fails")
            return work()

        # As with a thread, what has begun goes on when its caller is canceled.
        working = asyncio.ensure_future(in_time())
        working.add_done_callback(asyncio.Future.exception)
        return await asyncio.shield(working)

    def files(self, name: str) -> set[Path]:
        return {path for path in (self.folder / name).rglob("*") if path.is_file()}

    def write(self, name: str) -> None:
        self.written += 1
        path = self.folder / name / f"epoch {self.written}" / "model"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 10)
        # The time of an entry is that of its last change; two in the same tick have none that is newer.
        os.utime(path.parent, (self.written, self.written))

    async def settle(self) -> None:
        for _ in range(12):
            await others_turn()

    async def do(self, op: str, name: str) -> None:
        await getattr(self, "_" + op)(name)
        for other in sorted(self.starting):
            self.try_to_start(other)
        if self.task.done():
            if not self.task.cancelled():
                self.task.exception()
            self.task = asyncio.ensure_future(self.tidier.tidy_up())
        await self.settle()
        for other, files in self.must_exist.items():
            assert files <= self.files(other), f"{op}: {other} has lost files"

    async def _begin(self, name: str) -> None:
        """Begin a trial, or run it again: the rules know it at once, then it is committed, then it starts."""
        if name in self.rules.live:
            return
        trial = self.trials[name]
        self.trials[name] = Trial(name, 0, {}, state=TrialState.WAITING, attempt=trial.attempt + 1)
        self.rules.live[name] = SimpleNamespace(trial=self.trials[name])
        self.uncommitted.append(self.trials[name])
        await self._commit(name)
        self.starting.add(name)

    def try_to_start(self, name: str) -> None:
        trial = self.trials[name]
        try:
            self.start(trial, Attempt(name, trial.attempt))
        except NoCapacity:
            return
        self.starting.discard(name)
        self.write(name)
        self.must_exist[name] = self.files(name)

    async def _end(self, name: str, best: bool = False) -> None:
        if name not in self.rules.live or name in self.starting:
            return
        self.write(name)
        self.must_exist[name] = self.at_end[name] = self.files(name)
        del self.rules.live[name]
        self.trials[name] = Trial(name, 0, {}, state=TrialState.SUCCEEDED, attempt=self.trials[name].attempt)
        if best:
            self.rules.best = SimpleNamespace(id=name)
        self.uncommitted.append(self.trials[name])

    async def _best(self, name: str) -> None:
        await self._end(name, best=True)

    async def _commit(self, name: str) -> None:
        for trial in self.uncommitted:
            self.durable.pop(trial.id, None)
            self.durable[trial.id] = trial
            if trial.state.ended:
                self.must_exist.pop(trial.id, None)
        records, self.uncommitted = [messages.SaveTrial(trial) for trial in self.uncommitted], []
        if records:
            self.tidier.committed(records)

    async def _step(self, name: str, goes: bool = True) -> None:
        if self.waiting:
            self.waiting.pop(0).set_result(goes)
            await self.settle()

    async def _fail(self, name: str) -> None:
        await self._step(name, goes=False)

    async def _cancel(self, name: str) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    async def _resume(self, name: str) -> None:
        """The old manager goes with all of its threads, and what was not committed never was: it is told again."""
        await self._commit(name)
        self.task.cancel()
        await asyncio.wait([self.task])
        for gate in self.waiting:
            gate.set_result(False)
        self.waiting.clear()
        await self.settle()
        self.restart()

    async def finish(self) -> None:
        await self._commit("")
        for _ in range(80):
            await self.do("step", "")
        assert not self.starting, "a trial waits for ever"
        for name in set(self.durable) - set(self.rules.live):
            self.check(name, self.files(name))
        if self.rule.max_bytes is not None:
            ended = [path for name in set(NAMES) - set(self.rules.live) for path in self.files(name)]
            total = 10 * sum(len(self.files(name)) for name in NAMES)
            assert total <= self.rule.max_bytes or not ended
        # What a trial that runs again had before its last end goes after its next one.
        assert {path.name.removeprefix(".gone-") for path in self.folder.glob(".gone-*")} <= set(self.rules.live)

    def check(self, name: str, files: set[Path]) -> None:
        """Whether an ended trial has what it is to have, and nothing else."""
        best = self.rules.best is not None and self.rules.best.id == name
        had = self.at_end[name]
        wanted = {
            "none": set(),
            "last": {max(had, key=lambda path: int(path.parent.name.split()[1]))},
            "best": had if best else set(),
            "all": had,
        }[self.rule.keep]
        # With `maxSize` that is the most that it may have.
        assert files == wanted or (self.rule.max_bytes is not None and not files)


RULES = [
    *(CheckpointRule(keep) for keep in ("none", "last", "best", "all")),
    *(CheckpointRule(keep, 25) for keep in ("last", "best", "all", "all")),
]


async def check_order(folder: Path, rule: CheckpointRule, ops: list[tuple[str, str]]) -> None:
    world = World(folder, rule)
    for op, name in ops:
        await world.do(op, name)
    await world.finish()
    world.task.cancel()
    await asyncio.wait([world.task])


@settings(max_examples=5000 if "NNILITE_SIMULATION_RUNS" in os.environ else 150, deadline=None)
@given(
    st.sampled_from(RULES),
    st.lists(st.tuples(st.sampled_from(OPS), st.sampled_from(NAMES)), min_size=10, max_size=60),
)
def test_no_order_loses_a_file_or_leaves_one(rule: CheckpointRule, ops: list[tuple[str, str]]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        asyncio.run(check_order(folder, rule, ops))
    finally:
        shutil.rmtree(folder)
