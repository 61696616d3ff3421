"""A checkpoint of a Redis worker is stored once the manager has what the trial reported before it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nnilite_redis._mailbox import PoolMessage
from nnilite_redis._worker import confirmations
from nnilite_redis._worker.checkpoints import Checkpoints
from nnilite_redis._worker.confirmations import Confirmations

TASK: Any = SimpleNamespace(name="nni-exp-t-0", job=SimpleNamespace(experiment="exp", trial="t", attempt=0))


class Stored:
    def __init__(self) -> None:
        self.names: list[str] = []

    async def put(self, name: str, path: Path, what: str) -> None:
        self.names.append(name)


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """The folder of an attempt with two reports and a checkpoint."""
    (tmp_path / ".nni").mkdir()
    (tmp_path / ".nni" / "metrics").write_text("intermediate 1\nintermediate 2\n")
    (tmp_path / "exp" / "checkpoints" / "t").mkdir(parents=True)
    (tmp_path / "exp" / "checkpoints" / "t" / "step").write_text("2")
    return tmp_path


def answer(metrics: object, status: int = 200) -> PoolMessage:
    return PoolMessage({"status": status}, json.dumps({"metrics": metrics}).encode())


async def test_a_checkpoint_waits_for_the_reports_before_it_and_not_for_later_ones(trial: Path) -> None:
    stored, known, checkpoints = Stored(), Confirmations(trial), Checkpoints(trial)
    saving = asyncio.create_task(checkpoints.save(TASK, stored, lambda: known.come(lambda: False)))  # type: ignore[arg-type]
    for no_confirmation in (answer(1), answer(9, 503), answer("2"), PoolMessage({"status": 200}, b"[]")):
        known.note(no_confirmation)
        await asyncio.wait([saving], timeout=0.3)
        assert stored.names == []
    with (trial / ".nni" / "metrics").open("a") as spool:
        spool.write("intermediate 3\n")
    known.note(answer(2))
    await saving
    assert stored.names == ["checkpoint-exp-t-0"]


async def test_the_last_checkpoint_follows_one_that_waits(trial: Path) -> None:
    stored, known, checkpoints, ended = Stored(), Confirmations(trial), Checkpoints(trial), asyncio.Event()
    saving = asyncio.create_task(checkpoints.save(TASK, stored, lambda: known.come(ended.is_set)))  # type: ignore[arg-type]
    await asyncio.wait([saving], timeout=0.3)
    ended.set()
    await checkpoints.save(TASK, stored)  # type: ignore[arg-type]
    assert saving.done()
    assert stored.names == ["checkpoint-exp-t-0"]


async def test_a_manager_that_confirms_nothing_for_long_is_not_waited_for(
    trial: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, clock = Confirmations(trial), iter(range(0, 10_000, 100))
    monkeypatch.setattr(confirmations, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(confirmations, "_LOOK_S", 0)
    assert await known.come(lambda: False)
    assert next(clock) == 800
