"""A trial that has not ended, and an attempt that has not been removed, as the rules keep them in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from nnilite._manager.steps import LiveTrial, Settings
from nnilite.objectives import gains
from nnilite.records import Attempt, Exited, Json, Trial, TrialState

_LONGEST_RETRY_DELAY_S = 60.0
_REMOVE_AGAIN_S = 60.0  # and twice as long each time: the service may hang over it, and others wait meanwhile
_LONGEST_REMOVE_AGAIN_S = 3600.0
_VALUE = re.compile(r"""'[^']*'|"[^"]*"|[-+]?\b\d[\w.+-]*""")


class Phase(Enum):
    """Where the current attempt stands."""

    QUEUED = "queued"  # to be submitted when there is room
    SUBMITTING = "submitting"  # the service has been asked to take it
    SUBMITTED = "submitted"  # the service has it


def retry_delay_s(times: int) -> float:
    """1, 2, 4 ... 60 seconds."""
    return min(2.0 ** max(times - 1, 0), _LONGEST_RETRY_DELAY_S)


def error_kind(message: str) -> str:
    """The same for errors that differ only in numbers and quoted values: the last line without them."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return _VALUE.sub("...", lines[-1]) if lines else ""


@dataclass
class Removal:
    """Its service has still to free what an ended attempt held there."""

    attempt: Attempt
    due: float | None = None  # when to ask; None: it has been asked and has not answered
    failures: int = 0

    def failed(self, now: float) -> None:
        self.due = now + min(_REMOVE_AGAIN_S * 2.0**self.failures, _LONGEST_REMOVE_AGAIN_S)
        self.failures += 1


@dataclass
class Live:
    """Belongs to the rules alone."""

    trial: Trial
    attempt: Attempt | None = None
    phase: Phase = Phase.QUEUED
    seen: float = 0.0  # last sign of life of the current attempt
    running_since: float = 0.0
    not_before: float = 0.0  # do not submit earlier
    busy: bool = False  # ... because there was no room
    refusals: int = 0
    unanswered: bool = False  # the service was asked to take it and said neither yes nor no: it may have it
    lost: int = 0  # attempts that were lost / failed so far
    failed: int = 0
    cancel: TrialState | None = None  # its end was asked for, to be this state
    cancel_reason: str = ""
    end: Exited | None = None
    last_intermediate: Json = None
    reported: int = 0  # intermediate results so far

    @classmethod
    def restored(cls, known: LiveTrial, now: float) -> Live:
        """As it stood when the manager ended."""
        attempt = known.attempt if known.attempt and known.attempt.number == known.trial.attempt else None
        cancel = TrialState(attempt.cancel) if attempt and attempt.cancel else None
        return cls(
            trial=known.trial,
            attempt=attempt,
            phase=Phase.SUBMITTED if attempt and attempt.handle is not None else Phase.QUEUED,
            unanswered=attempt is not None and attempt.handle is None,
            seen=now,
            running_since=min(known.trial.started or now, now),
            lost=known.lost,
            failed=known.failed,
            cancel=cancel,
            cancel_reason="its end was asked for before the manager restarted" if cancel else "",
            last_intermediate=known.last_intermediate,
            reported=known.intermediates,
        )

    def reset(self, not_before: float) -> None:
        """Make ready for a further attempt."""
        self.attempt = None
        self.phase = Phase.QUEUED
        self.not_before, self.busy, self.unanswered = not_before, False, False
        self.cancel, self.cancel_reason = None, ""
        self.end = None
        self.last_intermediate = None
        self.reported = 0

    def may_retry(self, code: int | None, settings: Settings) -> bool:
        """Count the failure of the command; true if the settings allow a further attempt."""
        if code in settings.retry_exit_codes and self.lost < settings.retries_lost:
            self.lost += 1
            return True
        if self.failed < settings.retries_failed:
            self.failed += 1
            return True
        return False

    def flaw(self, objectives: tuple[str, ...]) -> str:
        """What is wrong with the result of a trial that ended well, "" if nothing is."""
        if self.trial.value is None:
            return "it reported no final result"
        if gains(self.trial.value, dict.fromkeys(objectives, 1.0)) is not None:
            return ""
        if objectives == ("default",):
            return "its final result is not a number (nor a dict whose `default` is one)"
        return f"its final result is not a dict with numbers for {' and '.join(objectives)}"

    def failure(self, end: Exited) -> str:
        """One sentence on why the attempt failed."""
        if end.message:
            return end.message
        if end.code is None:
            return "the trial command could not be started"
        return f"killed by signal {-end.code}" if end.code < 0 else f"exit code {end.code}"
