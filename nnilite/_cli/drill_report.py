"""Compute what a drill has cost from the attempts and metrics of a trial. The functions are pure.

Work is lost from the last result that no further attempt repeats until the attempt's end. A step number in the results
shows which of them are repeated. Without one, their count shows it, once the trial has succeeded, if all trials of one
attempt have the same count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

Report = dict[str, Any]
_MOST_NAMED = 5


class DrillOutcome(str, Enum):
    """What the report says about the curve of an interrupted trial."""

    WHOLE = "whole"
    GAP = "gap"
    DOUBLED = "doubled"
    BOTH = "gap, doubled"
    GOES_ON = "goes on"  # the trial has not ended: what is missing may come
    UNKNOWN = "unknown"


FAULTY = (DrillOutcome.GAP, DrillOutcome.DOUBLED, DrillOutcome.BOTH)


@dataclass(frozen=True)
class TrialFindings:
    """What is found about one trial."""

    interruptions: list[dict[str, Any]]
    curve: dict[str, Any]


def study_changes(
    trial: Mapping[str, Any], changes: list[dict[str, Any]], metrics: Sequence[Mapping[str, Any]], key: str = "step"
) -> TrialFindings:
    """Study an elastic trial, which has continued after these changes of its nodes."""
    return TrialFindings(changes, study(trial, [], metrics, key).curve)


def study(
    trial: Mapping[str, Any],
    drilled: Sequence[int],
    metrics: Sequence[Mapping[str, Any]],
    key: str = "step",
    usual: int | None = None,
) -> TrialFindings:
    """Study one trial.

    `drilled`: the numbers of the interrupted attempts. `usual`: the results of an uninterrupted trial.
    """
    reports = [one for one in metrics if one["kind"] == "PERIODICAL"]
    steps = [_step(one["value"], key) for one in reports]
    known = [step for step in steps if step is not None]
    has_steps = bool(known) and len(known) == len(steps)
    well = trial["state"] == "SUCCEEDED"
    expected = usual if well else None
    repeated = (
        _count_repeated_by_step(reports, known) if has_steps else _count_repeated_by_count(reports, expected, trial)
    )
    attempts = {one["number"]: one for one in trial["attempts"]}
    interruptions = [_describe_interruption(trial, attempts, number, reports, repeated) for number in drilled]
    missing, doubled = _compare_by_step(known) if has_steps else _compare_by_count(len(reports), expected)
    undelivered = _count_undelivered(reports)
    sure = has_steps or expected is not None
    outcome, detail = _outcome(missing, doubled, undelivered, sure)
    # Its further attempt may not have reported yet.
    if trial["ended"] is None and outcome not in FAULTY:
        outcome, detail = DrillOutcome.GOES_ON, ""
    facts = {"missing": missing, "doubled": doubled, "undelivered": undelivered}
    curve = {"trial": trial["id"], "state": trial["state"], "outcome": outcome.value, "detail": detail, **facts}
    return TrialFindings(interruptions, curve)


def summed(studies: Sequence[TrialFindings]) -> Report:
    """Return the report of all trials."""
    interruptions = [one for each in studies for one in each.interruptions]
    costs = [one["lostCost"] for one in interruptions if one["lostCost"] is not None]
    return {
        "interruptions": interruptions,
        "curves": [each.curve for each in studies],
        "lostSeconds": sum(one["lostSeconds"] or 0.0 for one in interruptions),
        "lostCost": sum(costs) if costs else None,
        "waitedSeconds": sum(one["waitedSeconds"] or 0.0 for one in interruptions),
    }


def _step(value: Any, key: str) -> int | None:
    found = value.get(key) if isinstance(value, Mapping) else None
    whole = isinstance(found, (int, float)) and not isinstance(found, bool) and found == found // 1
    return int(found) if whole and found is not None else None


def _count_repeated_by_step(reports: Sequence[Mapping[str, Any]], steps: Sequence[int]) -> dict[int, int]:
    """Return, by attempt, how many of its last results are repeated. The last one that has reported is left out."""
    by_attempt: dict[int, list[int]] = {}
    for one, step in zip(reports, steps, strict=True):
        by_attempt.setdefault(one["attempt"], []).append(step)
    numbers = sorted(by_attempt)
    found = {}
    for number, after in pairwise(numbers):
        begin = min(min(by_attempt[later]) for later in numbers if later >= after)
        found[number] = sum(step >= begin for step in by_attempt[number])
    return found


def _count_repeated_by_count(
    reports: Sequence[Mapping[str, Any]], expected: int | None, trial: Mapping[str, Any]
) -> dict[int, int]:
    """Do the same by count. If several interruptions are possible causes, the latest count comes first."""
    if expected is None:
        return {}
    counts = Counter(one["attempt"] for one in reports)
    left = max(len(reports) - expected, 0)
    found = {}
    for number in range(trial["attempt"] - 1, -1, -1):
        found[number] = min(left, counts[number])
        left -= found[number]
    return found


def _describe_interruption(
    trial: Mapping[str, Any],
    attempts: Mapping[int, Mapping[str, Any]],
    number: int,
    reports: Sequence[Mapping[str, Any]],
    repeated: Mapping[int, int],
) -> dict[str, Any]:
    attempt, after = attempts[number], attempts.get(number + 1)
    times = [one["time"] for one in reports if one["attempt"] == number]
    kept = times[: len(times) - repeated.get(number, 0)]
    begun, ended = attempt["started"], attempt["ended"]
    lost_s = waited_s = cost = None
    if begun is not None and ended is not None:
        # Worker and manager have clocks of their own.
        lost_s = min(max(ended - (kept[-1] if kept else begun), 0.0), max(ended - begun, 0.0))
        if attempt.get("cost") is not None:
            cost = attempt["cost"] * lost_s / (ended - begun) if ended > begun else 0.0
    if ended is not None and after is not None and after["started"] is not None:
        waited_s = max(after["started"] - ended, 0.0)
    return {
        "trial": trial["id"],
        "attempt": number,
        "service": attempt["service"],
        "host": attempt["host"],
        "lostSeconds": lost_s,
        "lostCost": cost,
        "waitedSeconds": waited_s,
        "atLeast": number not in repeated,
    }


def _compare_by_step(steps: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the steps that are missing between others, and those that came more than once."""
    counts = Counter(steps)
    order = sorted(counts)
    stride = min((after - before for before, after in pairwise(order)), default=1)
    missing = [step for step in range(order[0], order[-1], stride) if step not in counts]
    return missing, [step for step in order if counts[step] > 1]


def _compare_by_count(count: int, expected: int | None) -> tuple[int, int]:
    """Return how many results are missing, and how many came more than once."""
    return (0, 0) if expected is None else (max(expected - count, 0), max(count - expected, 0))


def _count_undelivered(reports: Sequence[Mapping[str, Any]]) -> int:
    """Return how many intermediate results did not arrive: each attempt numbers its own without gaps."""
    last: dict[int, int] = {}
    for one in reports:
        last[one["attempt"]] = max(last.get(one["attempt"], -1), one["sequence"])
    return sum(number + 1 for number in last.values()) - len(reports)


def _outcome(missing: Any, doubled: Any, undelivered: int, sure: bool) -> tuple[DrillOutcome, str]:
    """Return the outcome for a curve, and a sentence on it."""
    words = []
    if missing:
        words.append(f"missing: {_named(missing)}")
    if undelivered:
        words.append(f"reported and not delivered: {undelivered}")
    if doubled:
        words.append(f"more than once: {_named(doubled)}")
    gap = bool(missing or undelivered)
    if gap or doubled:
        outcome = DrillOutcome.BOTH if gap and doubled else DrillOutcome.GAP if gap else DrillOutcome.DOUBLED
        return outcome, "; ".join(words)
    if sure:
        return DrillOutcome.WHOLE, ""
    return DrillOutcome.UNKNOWN, "nothing to compare with; report a dict with a number `step`, or name yours by --step"


def _named(steps: list[int] | int) -> str:
    if isinstance(steps, int):
        return f"{steps} results"
    more = f" and {len(steps) - _MOST_NAMED} more" if len(steps) > _MOST_NAMED else ""
    return f"steps {', '.join(map(str, steps[:_MOST_NAMED]))}{more}"
