"""Money: what attempts, trials and experiments cost, and the end that a budget sets."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from simulation import EMPTY

from nnilite._engine import messages
from nnilite._engine.rules import Rules
from nnilite.records import Exited, ExperimentState, JobState, Started, Trial, TrialState
from nnilite.service import JobStatus

HOUR = 3600.0
PRICED = messages.Settings(2, max_cost=10.0, prices={"spot": 1.0}, retries_lost=1, silence_s=1e9)


class World:
    """Rules, with the time and the names of trials."""

    def __init__(self, settings: messages.Settings) -> None:
        self.rules = Rules(settings, EMPTY, 0.0)
        self.now = 0.0
        self.saved: dict[str, Trial] = {}
        self.asked: list[int] = []
        self.step(messages.TunerReady())

    def step(self, message: messages.Input) -> None:
        outcome = self.rules.step(message)
        self.saved |= {
            record.trial.id: record.trial for record in outcome.records if isinstance(record, messages.SaveTrial)
        }
        for action in outcome.actions:
            if isinstance(action, messages.Ask):
                self.asked += action.parameter_ids
            elif isinstance(action, messages.Cancel):
                ended = JobStatus(JobState.CANCELED, exit_code=-15)
                self.step(messages.Polled(action.attempt.trial, action.attempt.number, ended, self.now))
            elif isinstance(action, messages.Submit):
                trial, attempt = action.trial.id, action.attempt.number
                self.step(messages.Submitted(trial, attempt, "spot", {"job": trial}, self.now))
                self.step(messages.LiveEvents(trial, attempt, (Started(self.now),), self.now))
        if self.asked:
            ids, self.asked = self.asked, []
            self.step(messages.Proposed(tuple((k, f"t{k}", {}) for k in ids), len(ids), self.now))

    def running(self) -> list[str]:
        return [live.trial.id for live in self.rules.live.values() if live.trial.state is TrialState.RUNNING]

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.step(messages.Tick(self.now, self.now))

    def end(self, trial: str) -> None:
        number = self.rules.live[trial].trial.attempt
        self.step(messages.LiveEvents(trial, number, (Exited(self.now, 0),), self.now))


def test_an_attempt_costs_its_time_and_a_trial_all_its_attempts() -> None:
    world = World(replace(PRICED, concurrency=1, max_trials=1))
    world.wait(HOUR)
    world.step(messages.Polled("t0", 0, JobStatus(JobState.LOST, "gone"), world.now))
    assert world.saved["t0"].cost == 1.0
    world.wait(60.0)
    world.wait(HOUR / 2)
    assert world.rules.spent(world.now) == {"spot": 1.5}
    world.end("t0")
    assert world.saved["t0"].cost == 1.5
    assert world.saved["t0"].state is TrialState.SUCCEEDED


def test_an_attempt_that_is_lost_after_the_clock_was_set_back_ends_no_earlier_than_it_began() -> None:
    before = World(replace(PRICED, concurrency=1))
    before.wait(HOUR)
    before.end("t0")
    running = before.rules.live["t1"]
    snapshot = replace(EMPTY, live=(messages.LiveTrial(running.trial, running.attempt),))
    outcome = Rules(PRICED, snapshot, 60.0).step(messages.Polled("t1", 0, JobStatus(JobState.LOST), 60.0))
    lost = next(one.attempt for one in outcome.records if isinstance(one, messages.SaveAttempt) and one.attempt.ended)
    assert (lost.state, lost.started, lost.ended, lost.cost) == (JobState.LOST, HOUR, HOUR, 0.0)


def test_what_a_platform_tells_counts_in_place_of_the_price() -> None:
    world = World(replace(PRICED, concurrency=1, max_trials=1))
    world.wait(HOUR)
    world.step(messages.Polled("t0", 0, JobStatus(JobState.RUNNING, cost=0.25), world.now))
    assert world.rules.spent(world.now) == {"spot": 0.25}
    world.step(messages.Polled("t0", 0, JobStatus(JobState.SUCCEEDED, exit_code=0, cost=0.5), world.now))
    assert world.saved["t0"].cost == 0.5


def test_without_prices_nothing_has_a_cost() -> None:
    world = World(messages.Settings(1, max_trials=1))
    world.wait(HOUR)
    world.end("t0")
    assert world.saved["t0"].cost is None
    assert world.rules.spent(world.now) == {}


def test_a_trial_that_costs_far_more_than_others_is_ended_at_the_limit() -> None:
    world = World(replace(PRICED, concurrency=1))
    world.wait(11 * HOUR)
    assert world.saved["t0"].state is TrialState.SYS_CANCELED
    assert world.saved["t0"].reason == "11.00 is spent, and maxCost is 10"
    assert (world.rules.state, world.rules.reason) == (ExperimentState.DONE, "maxCost (10) is reached")


def test_an_experiment_goes_on_when_its_budget_is_raised() -> None:
    world = World(replace(PRICED, max_cost=0.0))
    assert (world.rules.state, world.saved) == (ExperimentState.DONE, {})
    world.step(messages.Changed(replace(PRICED, max_cost=5.0)))
    assert len(world.running()) == 2


STEP_S = 0.02 * HOUR


@hypothesis_settings(max_examples=25)
@given(st.integers(1, 8), st.randoms(use_true_random=False))
def test_an_experiment_stops_within_one_trial_of_its_limit(concurrency: int, chance: random.Random) -> None:
    world = World(replace(PRICED, concurrency=concurrency, max_cost=10.0))
    ends: dict[str, float] = {}
    while world.rules.state is not ExperimentState.DONE:
        for trial in world.running():
            if trial not in ends:
                ends[trial] = world.now + chance.uniform(0.2, 1.0) * HOUR
            if world.now >= ends[trial]:
                world.end(trial)
        world.wait(STEP_S)
    spent = sum(world.rules.spending.settled.values())
    dearest = max(trial.cost or 0.0 for trial in world.saved.values())
    assert 10.0 <= spent <= 10.0 + dearest + concurrency * STEP_S / HOUR
