"""Any order of events, duplicates, losses and crashes: what the rules promise holds."""

from __future__ import annotations

import os
import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation import EMPTY, World

from nnilite._manager import steps as s
from nnilite._manager.rules import Rules
from nnilite.records import Exited, ExperimentState, MetricKind, Reported, TrialState
from nnilite.service import JobState, JobStatus

RUNS = int(os.environ.get("NNILITE_SIMULATION_RUNS", "500"))

INDEX = st.integers(0, 50)
STEP = st.one_of(
    st.tuples(st.just("act"), INDEX),
    st.tuples(st.just("act"), INDEX),
    st.tuples(st.just("act"), INDEX),
    st.tuples(st.just("report"), INDEX, st.booleans()),
    st.tuples(st.just("exit"), INDEX, st.sampled_from([0, 0, 1, 77, -9])),
    st.tuples(st.just("lose"), INDEX),
    st.tuples(st.just("deliver"), INDEX, INDEX, st.integers(1, 10)),
    st.tuples(st.just("poll"), INDEX),
    st.tuples(st.just("stale"), INDEX),
    st.tuples(st.just("cancel"), INDEX),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("swallow"), st.booleans()),
    st.tuples(st.just("hold_on")),
    st.tuples(st.just("rerun"), INDEX),
    st.tuples(st.just("customize")),
    st.tuples(st.just("pass_time"), st.sampled_from([0.1, 5.0, 100.0])),
    st.tuples(st.just("crash")),
)
# lists that may be short are short nearly always, and reach little
STEPS = st.one_of(st.lists(STEP, max_size=10), st.lists(STEP, min_size=30, max_size=120))
SETTINGS = st.builds(
    s.Settings,
    concurrency=st.integers(1, 4),
    max_trials=st.integers(1, 6),
    retries_lost=st.integers(0, 2),
    retries_failed=st.integers(0, 1),
    retry_exit_codes=st.just(frozenset({77})),
    max_trial_duration_s=st.sampled_from([None, 50.0]),
    max_duration_s=st.sampled_from([None, 50.0]),
    assess=st.booleans(),
)


def check_always(world: World) -> None:
    for trial in world.committed.trials.values():
        assert trial.state is not TrialState.WAITING or trial.reason, "a waiting trial must say why"
        assert trial.state is not TrialState.UNKNOWN
    assert len(set(world.committed.metrics)) == len(world.committed.metrics), "a metric was doubled"
    numbers = [record.number for record in world.committed.calls]
    assert len(set(numbers)) == len(numbers), "two calls of the tuner have one number"
    asked = world.answer or any(isinstance(action, s.Ask) for action in world.actions)
    assert not (asked and world.rules.state is ExperimentState.DONE), "done, and yet there may be more trials"
    states = [trial.state for trial in world.committed.trials.values()]
    assert world.rules.counts == {state: states.count(state) for state in TrialState}


def check_calls(world: World) -> None:
    """A result comes before the end of its trial, and each once."""
    seen: dict[str | None, list[str]] = {}
    for call in world.committed.calls_until(world.rules.calls):
        seen.setdefault(call.trial_job_id, []).append(call.kind)
    for kinds in seen.values():
        assert re.fullmatch("(generate )?((result )?end )+", " ".join([*kinds, ""]))


@settings(max_examples=RUNS, deadline=None, suppress_health_check=list(HealthCheck))
@given(SETTINGS, STEPS)
def test_whatever_happens_everything_ends_and_nothing_is_lost_or_doubled(
    settings: s.Settings, steps: list[tuple[str, ...]]
) -> None:
    world = World(settings)
    world.start()
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
        check_always(world)
    world.run_out()
    check_always(world)
    check_calls(world)
    assert world.rules.state is ExperimentState.DONE
    assert not world.rules.live
    assert all(trial.state.ended for trial in world.committed.trials.values())
    world.wait_for_removals()
    assert not world.committed.removals
    assert all(job.removed for job in world.jobs.values()), "what a job held is never freed"


@settings(max_examples=RUNS // 5, deadline=None, suppress_health_check=list(HealthCheck))
@given(SETTINGS, STEPS)
def test_every_metric_of_a_job_that_lives_to_deliver_is_committed(
    settings: s.Settings, steps: list[tuple[str, ...]]
) -> None:
    world = World(settings)
    world.start()
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
    world.run_out()
    for job in world.jobs.values():
        if world.committed.trials[job.trial].attempt == job.attempt:
            world.deliver_all(job)
            indices = {(job.trial, job.attempt, e.index) for e in job.spool if isinstance(e, Reported)}
            assert indices <= set(world.committed.metrics)


@settings(max_examples=RUNS // 5, deadline=None, suppress_health_check=list(HealthCheck))
@given(SETTINGS, STEPS)
def test_a_stop_ends_everything_from_any_state(settings: s.Settings, steps: list[tuple[str, ...]]) -> None:
    world = World(settings)
    world.start()
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
    world.give(s.Stop(world.now))
    world.run_out()
    world.give(s.Abandon(world.now))
    assert world.rules.state is ExperimentState.STOPPED
    assert all(trial.state.ended for trial in world.committed.trials.values())


def test_a_running_trial_of_which_nothing_is_heard_says_so_until_something_is() -> None:
    rules = Rules(s.Settings(1), EMPTY, 0.0)
    rules.step(s.Customized("t", {}, 0.0))
    rules.step(s.Submitted("t", 0, "remote", {}, 0.0))
    reasons = []
    for state, reason in ((JobState.RUNNING, ""), (JobState.UNKNOWN, "box is down"), (JobState.RUNNING, "")):
        rules.step(s.Seen("t", 0, JobStatus(state, reason), 1.0))
        trial = rules.live["t"].trial
        reasons.append((trial.state, trial.reason))
    assert reasons == [(TrialState.RUNNING, reason) for reason in ("", "box is down", "")]


def test_a_tuner_without_ideas_is_asked_again_when_a_result_came_while_it_was_asked() -> None:
    rules = Rules(s.Settings(1), EMPTY, 0.0)
    rules.step(s.TunerReady())
    rules.step(s.Customized("t", {}, 0.0))
    rules.step(s.Submitted("t", 0, "local", {}, 0.0))
    rules.step(s.Told("t", 0, (Reported(0, MetricKind.FINAL, 0, 1.0, 1.0), Exited(1.0, 0)), 1.0))
    asked = rules.step(s.Proposed((), 1, 1.0)).actions
    assert [type(action) for action in asked] == [s.Ask]
    rules.step(s.Proposed((), 1, 1.0))
    assert rules.state is ExperimentState.DONE


def test_a_result_must_have_numbers_for_the_objectives() -> None:
    rules = Rules(s.Settings(3, objectives=("acc", "size")), EMPTY, 0.0)
    ended = []
    for trial, value in (("good", {"acc": 1, "size": 2}), ("half", {"acc": 1}), ("number", 1.0)):
        rules.step(s.Customized(trial, {}, 0.0))
        rules.step(s.Submitted(trial, 0, "local", {}, 0.0))
        records = rules.step(
            s.Told(trial, 0, (Reported(0, MetricKind.FINAL, 0, value, 1.0), Exited(1.0, 0)), 1.0)
        ).records
        ended += [r.trial.reason for r in records if isinstance(r, s.SaveTrial) and r.trial.state.ended]
    assert ended == ["", *["its final result is not a dict with numbers for acc and size"] * 2]


def test_what_the_tuner_was_asked_for_before_the_time_was_over_still_runs() -> None:
    rules = Rules(s.Settings(1, max_duration_s=10.0), EMPTY, 0.0)
    rules.step(s.TunerReady())
    rules.step(s.Tick(20.0))
    assert rules.state is ExperimentState.NO_MORE_TRIAL, "it would not propose the same again when the limit is raised"
    rules.step(s.Proposed(((0, "t", {"x": 0}),), 1, 21.0))
    rules.step(s.Submitted("t", 0, "local", {}, 21.0))
    rules.step(s.Told("t", 0, (Reported(0, MetricKind.FINAL, 0, 1.0, 22.0), Exited(22.0, 0)), 22.0))
    assert rules.state is ExperimentState.DONE


def test_a_tuner_is_not_asked_for_thousands_of_parameters_at_once() -> None:
    rules = Rules(s.Settings(1000, max_trials=120), EMPTY, 0.0)
    asked: list[int] = []
    actions = rules.step(s.TunerReady()).actions
    while asks := [action for action in actions if isinstance(action, s.Ask)]:
        ids = asks[0].parameter_ids
        asked.append(len(ids))
        actions = rules.step(s.Proposed(tuple((i, f"t{i}", {}) for i in ids), len(ids), 1.0)).actions
    assert asked == [50, 50, 20]
    assert len(rules.live) == 120
