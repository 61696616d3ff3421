"""The interruption of a drill: the attempt is lost, the trial is tried again, and no further attempt is used up."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from simulation import EMPTY

from nnilite._engine import messages
from nnilite._engine.rules import Rules
from nnilite._store.writer import Store
from nnilite.records import (
    DRILLED,
    Attempt,
    EndCause,
    Exited,
    JobState,
    MetricKind,
    Reported,
    Started,
    Trial,
    TrialState,
)
from nnilite.service import JobStatus


class Played:
    """Rules with one trial that runs, and what they want."""

    def __init__(self, **settings: Any) -> None:
        self.rules = Rules(messages.Settings(1, **settings), EMPTY, 0.0)
        self.records: list[messages.Record] = []
        self.actions: list[messages.Action] = []
        self.give(messages.Customized("t", {}, 0.0))
        self.begin(0)

    def begin(self, attempt: int) -> None:
        # Further attempts begin after a pause.
        self.give(messages.Tick(100.0 * attempt, 1.0 * attempt))
        self.give(messages.Submitted("t", attempt, "remote", {}, 100.0 * attempt))
        self.report(attempt, Started(100.0 * attempt))

    def give(self, message: messages.Input) -> None:
        outcome = self.rules.step(message)
        self.records += outcome.records
        self.actions += outcome.actions

    def report(self, attempt: int, *events: Any) -> None:
        self.give(messages.LiveEvents("t", attempt, events, self.rules.now))

    def interrupt(self) -> bool:
        """Whether the service is asked to end the attempt."""
        before = sum(isinstance(action, messages.Cancel) for action in self.actions)
        self.give(messages.Interrupt("t", self.rules.now))
        return sum(isinstance(action, messages.Cancel) for action in self.actions) > before

    def attempt(self, number: int) -> Attempt:
        found = [r.attempt for r in self.records if isinstance(r, messages.SaveAttempt) and r.attempt.number == number]
        return found[-1]

    @property
    def trial(self) -> Trial:
        return next(r.trial for r in reversed(self.records) if isinstance(r, messages.SaveTrial))


INTERRUPTED = Exited(1.0, -15, cause=EndCause.INTERRUPTED)


@pytest.mark.parametrize(
    "end",
    [
        messages.LiveEvents("t", 0, (INTERRUPTED,), 1.0),
        messages.LiveEvents("t", 0, (Exited(1.0, 143),), 1.0),
        messages.Polled("t", 0, JobStatus(JobState.CANCELED), 1.0),
        messages.Polled("t", 0, JobStatus(JobState.FAILED, exit_code=143), 1.0),
        messages.Polled("t", 0, JobStatus(JobState.LOST), 1.0),
    ],
)
def test_an_interrupted_attempt_is_lost_whatever_its_platform_says(end: messages.Input) -> None:
    played = Played(retries_lost=0)
    assert played.interrupt()
    played.give(end)
    assert (played.attempt(0).state, played.attempt(0).message) == (JobState.LOST, DRILLED)
    assert (played.trial.state, played.trial.attempt) == (TrialState.WAITING, 1)


def test_interruptions_use_up_no_further_attempt() -> None:
    played = Played(retries_lost=1)
    for number in range(5):
        assert played.interrupt()
        played.report(number, INTERRUPTED)
        played.begin(number + 1)
    played.give(messages.Polled("t", 5, JobStatus(JobState.LOST), 550.0))
    assert played.trial.attempt == 6, "the one that the user has allowed is still there"
    played.begin(6)
    played.give(messages.Polled("t", 6, JobStatus(JobState.LOST), 700.0))
    assert played.trial.state is TrialState.FAILED


def test_only_a_running_trial_is_interrupted_and_once() -> None:
    played = Played()
    assert played.interrupt()
    assert not played.interrupt()
    played.report(0, INTERRUPTED)
    assert not played.interrupt(), "it waits"
    played.begin(1)
    played.give(messages.CancelTrial("t", 200.0))
    assert not played.interrupt(), "the user has canceled it"


def test_a_trial_that_reaches_its_result_all_the_same_has_succeeded() -> None:
    played = Played()
    played.interrupt()
    played.report(0, Reported(0, MetricKind.FINAL, 0, 1.0, 1.0), Exited(1.0, 0, cause=EndCause.INTERRUPTED))
    assert (played.trial.state, played.attempt(0).message) == (TrialState.SUCCEEDED, "")


def test_the_user_s_cancel_counts_more_than_the_drill() -> None:
    played = Played()
    played.interrupt()
    played.give(messages.CancelTrial("t", 1.0))
    played.report(0, INTERRUPTED)
    assert played.trial.state is TrialState.USER_CANCELED


def test_a_drill_survives_the_manager_and_is_not_counted_by_the_next_one(tmp_path: Path) -> None:

    played = Played()
    played.interrupt()
    with contextlib.closing(Store.create(tmp_path / "nnilite.sqlite", "abcd", 1.0)) as store:
        store.write([r for r in played.records if isinstance(r, (messages.SaveTrial, messages.SaveAttempt))])
        [live] = store.resume_reader.snapshot(maximize=True).live
        again = Rules(messages.Settings(1, retries_lost=0), messages.Snapshot(**{**vars(EMPTY), "live": (live,)}), 0.0)
        assert again.live["t"].drilled
        store.write(again.step(messages.Polled("t", 0, JobStatus(JobState.CANCELED), 1.0)).records)
        [live] = store.resume_reader.snapshot(maximize=True).live
    assert (live.trial.attempt, live.lost) == (1, 0)
