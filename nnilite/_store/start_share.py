"""Says where most of a trial's time goes into its start, which `preload` can do once for all trials."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from nnilite._sdk.worker_facts import NAME
from nnilite._store.stored_values import read_stored_value

BEFORE = "before it asked for its parameters"
"""Words of the sentence."""

_FIRST = 50  # trials that are examined; the first one of each host has the facts
_LEAST_S = 0.3
_LEAST_SHARE = 0.5
_QUERY = (
    "SELECT x.trial, x.value, a.ended - a.started FROM attributes x "
    "JOIN attempts a ON a.trial = x.trial AND a.number = x.attempt "
    "WHERE x.trial < ? AND x.name = ? AND a.state = 'SUCCEEDED' AND a.ended > a.started ORDER BY x.trial DESC"
)
_DURATIONS = "SELECT ended - started FROM trials WHERE sequence < ? AND state = 'SUCCEEDED' AND ended > started"


def find_start_share(rows: Callable[..., list[Any]]) -> str:
    """Return a sentence with the figure of one trial; "" if starts take less than half of the time, or 0.3 s."""
    for trial, text, took_s in rows(_QUERY, _FIRST, NAME):
        value = read_stored_value(text)
        start_s = value.get("startS") if isinstance(value, dict) else None
        if not isinstance(start_s, (int, float)) or not _LEAST_S <= start_s <= took_s:
            continue
        # Where imports came from a cold disk, only the first trials have started slowly.
        # A canceled trial whose command has ended with 0 has a successful attempt, and is none of these.
        usual_s = statistics.median([duration for (duration,) in rows(_DURATIONS, _FIRST)] or [took_s])
        if start_s < _LEAST_SHARE * max(took_s, usual_s):
            return ""
        return (
            f"trial {trial} took {took_s:.1f} s, {start_s:.1f} s of them {BEFORE}: if these are imports, preload in "
            "trainingService has them done once for all trials"
        )
    return ""
