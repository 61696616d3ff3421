"""`--foreground`: how often the manager is asked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nnilite._cli import foreground
from nnilite._running.manager_connection import Unreachable
from nnilite.errors import NniliteError

PROFILE = {"counts": {}, "waiting": [], "limits": {"maxTrialNumber": 1}, "reason": "", "best": None, "duration": 0.0}


def test_a_short_experiment_is_not_waited_for_longer_than_it_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And a long one is not asked more often than that."""
    states = iter(["RUNNING"] * 12 + ["DONE"])
    manager: Any = SimpleNamespace(profile=lambda: {**PROFILE, "state": next(states)})
    pauses: list[float] = []
    monkeypatch.setattr(foreground.time, "sleep", pauses.append)
    entry: Any = SimpleNamespace(directory=tmp_path)
    assert foreground.watch(manager, entry, lambda profile, course: None)["state"] == "DONE"
    assert (pauses[0], pauses[-1]) == (foreground.FIRST_POLL_S, foreground.POLL_S)
    assert pauses == sorted(pauses)
    assert sum(pause < foreground.POLL_S for pause in pauses) < 10


def test_a_manager_that_has_died_is_not_said_to_be_starting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The system may hold its lock for an instant after its port is closed."""
    held = iter([True, True, False])
    monkeypatch.setattr(foreground.registry, "is_alive", lambda directory: next(held))

    def profile() -> dict[str, Any]:
        raise Unreachable("The manager is not at http://127.0.0.1:1 now: it is starting or ending. Try again.")

    manager: Any = SimpleNamespace(profile=profile)
    entry: Any = SimpleNamespace(id="abcd", directory=tmp_path)
    with pytest.raises(NniliteError) as told:
        foreground.watch(manager, entry, lambda profile, course: None)
    assert str(told.value) == (
        "Experiment abcd: its manager has died, and trials may still run; `nnictl resume abcd` continues it. "
        f"{tmp_path / 'log' / 'manager.log'} may show why."
    )
