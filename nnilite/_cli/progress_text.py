"""The progress of an experiment as text, computed only from profiles of its manager and their times."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from nnilite._cli import screen, summary

WINDOW_S = 120.0
"""The seconds over which the rate is measured, since trials do not all take the same time."""

PATIENCE_S = 3.0
"""A trial that has waited for less time is only being started."""

_OPEN = ("WAITING", "RUNNING", "UNKNOWN")
_OVER = ("DONE", "ERROR", "STOPPED")
_ENDING = ("NO_MORE_TRIAL", "TUNER_NO_MORE_TRIAL")


@dataclass
class ProgressHistory:
    """The course of an experiment so far. From profiles and their times it computes the recent rate.

    Times are seconds of any clock.
    """

    _seen: deque[tuple[float, int]] = field(default_factory=deque)
    _waiting: dict[str, float] = field(default_factory=dict)
    _now: float = 0.0

    def record(self, now: float, profile: dict[str, Any]) -> None:
        self._now = now
        self._note_ended(now, count_ended(profile))
        self._waiting = {reason: self._waiting.get(reason, now) for reason in _explain_delays(profile)}

    def _note_ended(self, now: float, count: int) -> None:
        if len(self._seen) > 1 and self._seen[-1][1] == count:
            self._seen.pop()
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] < now - WINDOW_S:
            self._seen.popleft()

    @property
    def per_s(self) -> float | None:
        """The rate in trials per second; None before it is known."""
        if len(self._seen) < 2:
            return None
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return (after - before) / (last - first) if after > before and last > first else None

    def lasting(self, profile: dict[str, Any]) -> list[str]:
        """Return what holds up the experiment, such as a full disk, and why trials wait or services fail for long."""
        return [
            *_explain_standstill(profile),
            *(
                line
                for reason, line in _explain_delays(profile).items()
                if self._now - self._waiting.get(reason, self._now) >= PATIENCE_S
            ),
        ]


def _explain_delays(profile: dict[str, Any]) -> dict[str, str]:
    """Return a sentence for each reason for which trials wait, and for each training service that fails."""
    return summary.explain_waiting(profile) | summary.service_troubles(profile)


def _explain_standstill(profile: dict[str, Any]) -> list[str]:
    """Return why nothing new begins: what holds up the experiment, or the limit that it has reached."""
    reason = screen.brief(profile["reason"])
    if not reason or profile["state"] not in ("RUNNING", *_ENDING):
        return []
    if profile["state"] == "RUNNING":
        return [reason]
    # Running last trials are normal at the end of an experiment, so they are not mentioned.
    if reason.startswith("maxTrialNumber"):
        return []
    left = sum(profile["counts"].get(state, 0) for state in _OPEN)
    trials = "1 trial has" if left == 1 else f"{left} trials have"
    return [f"{reason}, and {trials} not ended yet; `nnictl stop` ends {'it' if left == 1 else 'them'} now"]


def count_ended(profile: dict[str, Any]) -> int:
    """Return how many trials have ended, in whatever way."""
    return sum(count for state, count in profile["counts"].items() if state not in _OPEN)


def left_s(profile: dict[str, Any], course: ProgressHistory) -> float | None:
    """Return the seconds until a limit of the experiment is reached; None if there is none, or it is not known."""
    limits = profile["limits"]
    guesses = []
    if profile["state"] in _OVER:
        return None
    if limits["maxTrialNumber"] is not None and course.per_s:
        guesses.append(max(limits["maxTrialNumber"] - count_ended(profile), 0) / course.per_s)
    # This limit ends no trial that runs. Once it is over, the rest may take any time.
    if limits["maxExperimentDuration"] is not None and profile["state"] not in _ENDING:
        guesses.append(max(limits["maxExperimentDuration"] - profile["duration"], 0.0))
    return min(guesses, default=None)


def rate(course: ProgressHistory) -> str:
    """Return the rate with the unit that is easiest to read: `3.2 trials/s`, `12 trials/min` or `4 trials/h`."""
    if course.per_s is None:
        return "-"
    count, unit = next((one for one in ((1, "s"), (60, "min")) if course.per_s * one[0] >= 1), (3600, "h"))
    return f"{course.per_s * count:.3g} trials/{unit}"


def best(profile: dict[str, Any]) -> str:
    """Return the best metric so far, and its trial."""
    found = profile["best"]
    return "-" if found is None else f"{screen.metric(found['value'])} (trial {found['id']})"


def done(profile: dict[str, Any]) -> str:
    """Return the number of ended trials: `12/30`, or `12` without a limit."""
    limit = profile["limits"]["maxTrialNumber"]
    return f"{count_ended(profile)}/{limit}" if limit else str(count_ended(profile))


def line(profile: dict[str, Any], course: ProgressHistory) -> str:
    """Return the whole progress on one line, for a log."""
    left = screen.span(left_s(profile, course))
    parts = [
        f"{done(profile)} trials done",
        f"{profile['counts'].get('RUNNING', 0)} running",
        f"best {best(profile)}" if profile["best"] is not None else "",
        rate(course),
        f"{left} left" if left else "",
        *course.lasting(profile),
    ]
    failed = profile["counts"].get("FAILED", 0)
    if failed:
        parts.insert(1, f"{failed} failed")
    return ", ".join(part for part in parts if part and part != "-")
