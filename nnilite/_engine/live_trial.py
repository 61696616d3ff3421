"""A trial that has not ended, and an attempt that has not been removed, as the rules keep them in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from nnilite._engine.messages import LiveTrial, Settings
from nnilite.records import DRILLED, Attempt, Exited, Json, Trial, TrialState, find_error_line
from nnilite.tuner import scalar

_LONGEST_RETRY_DELAY_S = 60.0
# The delay is twice as long after each failure: while a service hangs at a removal, all its other calls wait.
_REMOVE_AGAIN_S = 60.0
_LONGEST_REMOVE_AGAIN_S = 3600.0
_LAST_REMOVE_AGAIN_S = 1.0
_VALUE = re.compile(r"""'[^']*'|"[^"]*"|[-+]?\b\d[\w.+-]*""")


def _explain_import(said: str) -> str:
    """Return what to do where Python did not find the functions for trials, which a keeper puts on PYTHONPATH."""
    missing = _OWN_MODULE.fullmatch(find_error_line(said))
    if missing is None:
        return ""
    return (
        f": Python did not look into the folder that PYTHONPATH has for {missing[1]}; if the command sets it, "
        "write PYTHONPATH=FOLDER:$PYTHONPATH, and leave out -I, -E and env -i"
    )


_OWN_MODULE = re.compile(r"ModuleNotFoundError: No module named '(nni|nnilite)'")


class Phase(Enum):
    """How far the submission of the current attempt has come."""

    QUEUED = "queued"  # to be submitted when there is room
    SUBMITTING = "submitting"  # the service has been asked to run it
    SUBMITTED = "submitted"  # the service has it


def retry_delay_s(times: int) -> float:
    """Return the delay before a retry: 1, 2, 4 ... 60 seconds."""
    return min(2.0 ** max(times - 1, 0), _LONGEST_RETRY_DELAY_S)


def find_error_kind(message: str) -> str:
    """Return what a message says went wrong, without numbers and quoted values: equal for errors of the same kind."""
    return _VALUE.sub("...", find_error_line(message))


@dataclass
class Removal:
    """A job of an ended attempt whose service has not yet freed what it held there."""

    attempt: Attempt
    # When to ask the service; None while its answer is awaited.
    due: float | None = None
    failures: int = 0

    def failed(self, now: float, last: bool) -> None:
        """Note a failed removal. `last`: the manager is about to end, and asks again soon until then."""
        pause_s = min(_REMOVE_AGAIN_S * 2.0**self.failures, _LONGEST_REMOVE_AGAIN_S)
        self.due = now + (_LAST_REMOVE_AGAIN_S if last else pause_s)
        self.failures += 1


@dataclass
class ActiveTrial:
    """A trial that has not ended. Only the rules change it."""

    trial: Trial
    attempt: Attempt | None = None
    phase: Phase = Phase.QUEUED
    seen: float = 0.0  # last sign of life of the current attempt, in time that the manager has lived
    delivered: float | None = None  # when events of the current attempt last came, in the same time
    running_since: float = 0.0
    not_before: float = 0.0  # the time before which it is not submitted
    hidden: str = ""  # why the platform could not report the state of its job when last asked
    busy: bool = False  # it is held back because the service had no room
    refusals: int = 0  # in a row, without a clear no
    lasting: int = 0  # likewise, those that hardly pass by themselves
    # The service may have the job: it was asked to take it and answered neither yes nor no.
    unanswered: bool = False
    lost: int = 0  # attempts that were lost / failed so far
    failed: int = 0
    unstarted: int = 0  # attempts that their machines could not start
    # The state in which the trial is to end, once its end was asked for.
    cancel: TrialState | None = None
    cancel_reason: str = ""
    drilled: bool = False  # a drill has asked for the end of the current attempt
    end: Exited | None = None
    # Since when, in lived time, the rules wait for the platform to say why it ended the attempt.
    held: float | None = None
    # Names the reports that were not kept as reported. The store keeps it as the attempt's message.
    complaint: str = ""
    last_intermediate: Json = None
    reported: int = 0  # intermediate results so far
    finals: int = 0  # final results of this attempt so far
    # What the platform says that the current attempt has cost so far.
    reported_cost: float | None = None
    queued_since: float = 0.0  # in lived time: since when its service has the current attempt
    tried: tuple[str, ...] = ()  # the services of earlier attempts, to which a further one goes last

    @classmethod
    def restored(cls, known: LiveTrial, now: float, settings: Settings) -> ActiveTrial:
        """Return the trial in the state in which the last manager left it."""
        attempt = known.attempt if known.attempt and known.attempt.number == known.trial.attempt else None
        cancel = attempt.cancel if attempt else None
        drilled = attempt is not None and attempt.message.startswith(DRILLED)
        live = cls(
            trial=known.trial,
            attempt=attempt,
            phase=Phase.SUBMITTED if attempt and attempt.handle is not None else Phase.QUEUED,
            unanswered=attempt is not None and attempt.handle is None,
            running_since=min(known.trial.started or now, now),
            # The stored reason may be that the platform could not be asked, which its first good answer must end.
            hidden=known.trial.reason if known.trial.state is TrialState.WAITING else "",
            lost=known.lost,
            unstarted=known.unstarted,
            cancel=cancel,
            drilled=drilled,
            complaint="" if attempt is None or drilled else attempt.message,
            cancel_reason="its end was asked for before the manager restarted" if cancel else "",
            end=attempt.reported_end if attempt else None,
            # An end that is kept though the service has the job waits for the platform's reason for it.
            held=0.0 if attempt and attempt.reported_end and attempt.handle is not None else None,
            last_intermediate=known.last_intermediate,
            reported=known.intermediates,
            tried=known.tried,
        )
        for code in known.failed:
            live.may_retry(code, settings)
        return live

    def reset(self, not_before: float) -> None:
        """Prepare the trial for a further attempt."""
        if self.attempt is not None and self.attempt.service:
            self.tried = (*self.tried, self.attempt.service)
        self.attempt, self.reported_cost = None, None
        self.phase = Phase.QUEUED
        self.not_before, self.busy, self.unanswered = not_before, False, False
        self.refusals = self.lasting = 0
        self.cancel, self.cancel_reason, self.drilled = None, "", False
        self.end, self.held, self.complaint = None, None, ""
        self.last_intermediate = None
        self.reported, self.finals = 0, 0
        self.delivered = None

    @property
    def is_placed(self) -> bool:
        """Whether a service has the current attempt, or may have it."""
        return self.phase is not Phase.QUEUED or self.unanswered

    @property
    def may_move(self) -> bool:
        """Whether a service has the trial and has not begun it, and its end has not been requested."""
        waits = self.phase is Phase.SUBMITTED and self.trial.state is TrialState.WAITING
        return waits and self.cancel is None and self.end is None

    @property
    def may_be_drilled(self) -> bool:
        """Whether its command runs, and its end has not been requested."""
        runs = self.phase is Phase.SUBMITTED and self.trial.state is TrialState.RUNNING
        return runs and self.cancel is None and self.end is None and not self.drilled

    def awaits_member_answer(self) -> bool:
        """Return whether a hybrid service's member was asked to take the job and has neither accepted nor refused."""
        asked = self.attempt is not None and self.attempt.service
        return bool(asked) and self.phase is Phase.QUEUED and self.unanswered and self.cancel is None

    def begun(self, otherwise: float) -> float:
        """Return when the command of the current attempt began, by the clock of its worker."""
        started = self.attempt.started if self.attempt is not None else None
        return otherwise if started is None else started

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
        """Return what is wrong with the result of a trial whose command succeeded; "" if nothing is."""
        if self.trial.value is None:
            return "it reported no final result, or only None"
        value = self.trial.value
        by_name = value if isinstance(value, dict) else {"default": value}
        if all(scalar(by_name, name) is not None for name in objectives):
            return ""
        if objectives == ("default",):
            return "its final result is not a number (nor a dict whose `default` is one)"
        return f"its final result is not a dict with numbers for {' and '.join(objectives)}"

    def failure(self, end: Exited) -> str:
        """Return one sentence on why the attempt failed."""
        if end.message:
            first, *more = end.message.split("\n")
            return "\n".join([first + _explain_import(end.message), *more])
        if end.code is None:
            return "the trial command could not be started"
        return f"killed by signal {-end.code}" if end.code < 0 else f"exit code {end.code}"
