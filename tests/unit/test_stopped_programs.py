"""A program that is stopped for longer than any limit, as by Ctrl-Z, and then continues."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from interrupts import is_interrupted_at
from nnilite._experiments import registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import final_delivery, managers, timely_answer
from nnilite._running.manager_client import Client
from nnilite._search import journal
from stand_in_manager import stand_in_manager


class Pause:
    """A stop of this process, of which it sees that the clock has gone on."""

    def __init__(self) -> None:
        self.total_s = 0.0

    def __call__(self) -> None:
        self.total_s += 10_000.0

    def changes_the_clock_of(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + self.total_s, sleep=lambda seconds: None)
        monkeypatch.setattr(module, "time", clock)


@pytest.fixture
def pause() -> Pause:
    return Pause()


def test_an_answer_that_has_come_meanwhile_is_read(pause: Pause, monkeypatch: pytest.MonkeyPatch) -> None:
    pause.changes_the_clock_of(timely_answer, monkeypatch)
    with stand_in_manager() as manager, Client(manager.url) as client:
        manager.says("GET /experiment", {"state": "RUNNING", "more": "x" * 100_000})
        for line in count(1, 5):
            client.close()
            if not is_interrupted_at(line, pause, client.profile):
                break
    assert line > 100


@pytest.mark.parametrize("wait", [managers.wait_until_ended, managers.kill])
def test_a_manager_that_has_ended_meanwhile_has_ended_in_time(
    pause: Pause, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: Any
) -> None:
    pause.changes_the_clock_of(managers, monkeypatch)
    monkeypatch.setattr(managers, "_process", lambda entry: 2**22 + 1)  # no process has this number
    entry = RegistryEntry(id="abcd", name="", directory=tmp_path, alive=True)
    for line in count(1):
        before, looks = pause.total_s, count()
        monkeypatch.setattr(registry, "is_alive", lambda _, b=before, n=looks: pause.total_s == b and next(n) < 3)
        if not is_interrupted_at(line, pause, lambda: wait(entry)):
            break
    assert line > 10


@pytest.mark.parametrize("line", range(1, 20))
def test_a_lock_that_is_free_meanwhile_is_taken(
    pause: Pause, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int
) -> None:
    pause.changes_the_clock_of(journal, monkeypatch)
    holder, waiter = journal._Lock(tmp_path / "lock"), journal._Lock(tmp_path / "lock")
    holder.take()
    assert is_interrupted_at(line, lambda: (pause(), holder.release()), waiter.take)
    waiter.release()


@pytest.mark.parametrize("line", range(1, 20))
def test_what_was_sent_meanwhile_is_not_owed(pause: Pause, monkeypatch: pytest.MonkeyPatch, line: int) -> None:
    pause.changes_the_clock_of(final_delivery, monkeypatch)

    def profile() -> dict[str, Any]:
        return {"owed": [] if pause.total_s else [{"name": "mlflow", "trials": 1, "results": 0, "messages": 0}]}

    answers: list[dict[str, Any]] = []
    manager: Any = SimpleNamespace(profile=profile)
    assert is_interrupted_at(
        line, pause, lambda: answers.append(final_delivery.wait_until_sent(manager, lambda sentence: None))
    )
    assert answers == [{"owed": []}]
