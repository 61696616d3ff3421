"""The best results of several experiments, over the number of their trials and over their time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nnilite._experiments.registry import RegistryEntry
from nnilite._running.manager_client import Client
from nnilite._running.reading import checking_answers, opened, what_ran
from nnilite.errors import NniliteError
from nnilite.records import Json
from nnilite.tuner import scalar

MOST = 10
"""How many experiments can be compared at once: more lines cannot be distinguished."""


def compared(entry: RegistryEntry, objective: str) -> dict[str, Json]:
    """Return one experiment of a comparison. `objective`: "" for its first one.

    Its `points` are those at which the best result so far changed, `[trials, seconds since the start, best]`, and one
    at the last result. Raises: NniliteError if it cannot be read.
    """
    with opened(entry) as client, checking_answers(entry):
        profile = client.profile()
        objectives = profile["objectives"]
        first, *_ = objectives
        name = objective if objective in objectives else first
        goal = objectives[name]
        ended = client.trials(sort="ended", states=("SUCCEEDED",))
        points, best = _points(ended, name, goal, profile["created"])
        ran = _ran(client)
    return {
        "id": entry.id,
        "name": entry.name,
        "state": entry.state,
        "config": {**profile["config"], "searchSpace": profile["searchSpace"]},
        "ran": ran,
        "objective": name,
        "goal": goal,
        "objectives": objectives,
        "counts": profile["counts"],
        "duration": profile["duration"],
        "points": points,
        "best": None if best is None else {key: best[key] for key in ("id", "sequence", "parameters", "value")},
    }


def _ran(client: Client) -> Json:
    """Return what ran at the last start; None where nothing is recorded, or it cannot be read."""
    try:
        return what_ran(client, comparable=True)["start"]
    except NniliteError:
        return None


def _points(
    trials: Iterable[Mapping[str, Any]], name: str, goal: str, begin: float
) -> tuple[list[list[float]], Mapping[str, Any] | None]:
    points: list[list[float]] = []
    best = None
    last = None
    for count, trial in enumerate(trials, 1):
        value = None if trial.get("violates") else scalar(trial["value"], name)
        seconds = max(0.0, (trial["ended"] or begin) - begin)
        if value is not None and (
            not points or (value > points[-1][2] if goal == "maximize" else value < points[-1][2])
        ):
            points.append([count, seconds, value])
            best = trial
        if points:
            last = [count, seconds, points[-1][2]]
    # Without it the line would end at the last improvement, and hide how long nothing has improved since.
    if last is not None and last != points[-1]:
        points.append(last)
    return points, best
