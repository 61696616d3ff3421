"""What running trials use now, by the last reports of their keepers. It is kept in memory, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnilite._engine.dedupe import JobKey
from nnilite._engine.live_trial import ActiveTrial
from nnilite.records import Used

_FORGOTTEN_AFTER_S = 60.0  # six heartbeats: what was true then need not be true any more
_SPARE = 16


@dataclass(frozen=True)
class UsageReport:
    """The last report on an attempt's use, and when it came, in seconds since the epoch."""

    attempt: int
    used: Used
    time: float


class UsageReports:
    """The last reports on all running trials. `live` are the trials that the rules have, by id."""

    def __init__(self, live: Mapping[str, ActiveTrial]) -> None:
        self._live = live
        self._last: dict[str, UsageReport] = {}

    def record(self, key: JobKey, used: Used, now: float) -> None:
        """Keep a keeper's report, which has passed the gate."""
        trial, attempt = key
        self._last[trial] = UsageReport(attempt, used, now)
        if len(self._last) > len(self._live) + _SPARE:
            self._last = self.list_current(now)

    def list_current(self, now: float) -> dict[str, UsageReport]:
        """Return the current use of each running trial, as far as its present attempt reported it recently."""
        return {trial: last for trial, last in self._last.items() if self._is_true(trial, last, now)}

    def _is_true(self, trial: str, last: UsageReport, now: float) -> bool:
        live = self._live.get(trial)
        return live is not None and live.trial.attempt == last.attempt and now - last.time < _FORGOTTEN_AFTER_S
