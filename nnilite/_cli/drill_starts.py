"""Compute what the loss and the return of nodes have cost an elastic trial, from the records of its ranks. Pure.

A worker writes these records, so what is not one is left out. Rank 0 writes the results, too, so its clock is theirs:
work is lost from its last result to the end of its process, and it waits until its next process has started.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from nnilite._cli.trial_roles import read_time

_LOST = ("LOST", "FAILED")


def list_changes(
    trial: Mapping[str, Any], roles: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return each further start of the latest attempt: what was lost by it, and who had left."""
    starts: dict[int, list[Mapping[str, Any]]] = {}
    for role in roles:
        if role.get("role") == "rank" and type(role.get("start")) is int:
            starts.setdefault(int(role["start"]), []).append(role)
    [attempt] = [one for one in trial["attempts"] if one["number"] == trial["attempt"]] or [None]
    times = sorted(one["time"] for one in metrics if one["attempt"] == trial["attempt"])
    found = []
    for number in sorted(starts):
        if attempt is not None and number - 1 in starts:
            change = _describe(attempt, starts[number - 1], starts[number], times)
            found.append({"trial": trial["id"], "attempt": trial["attempt"], "start": number, **change})
    return found


def _describe(
    attempt: Mapping[str, Any],
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    times: Sequence[float],
) -> dict[str, Any]:
    """Describe one change. `times`: of all results of the attempt, in order."""
    lost_s = waited_s = cost = None
    begun, ended, again = _time(before, "started"), _time(before, "ended"), _time(after, "started")
    if begun is not None and ended is not None:
        known = bisect_right(times, ended)
        kept = max([begun, *times[max(known - 1, 0) : known]])
        lost_s = max(ended - kept, 0.0)
        waited_s = None if again is None else max(again - ended, 0.0)
        whole_s = (attempt["ended"] or 0.0) - (attempt["started"] or 0.0)
        cost = None if attempt.get("cost") is None or whole_s <= 0 else attempt["cost"] * lost_s / whole_s
    gone = [str(role.get("host")) for role in before if role.get("state") in _LOST]
    return {
        "service": attempt["service"],
        "host": gone[0] if gone else "",
        "nodes": [len({str(role.get("node")) for role in ranks}) for ranks in (before, after)],
        "lostSeconds": lost_s,
        "lostCost": cost,
        "waitedSeconds": waited_s,
        "atLeast": False,
    }


def _time(ranks: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return a time of rank 0, if its record has one."""
    return next((read_time(role, name) for role in ranks if role.get("rank") == 0), None)
