"""`--foreground`: how often the manager is asked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nnilite._cli import foreground

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
