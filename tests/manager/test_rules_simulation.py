"""Any order of events, duplicates, losses and crashes: what the rules promise holds."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation import EMPTY, Committed, World

from nnilite._engine import messages
from nnilite._engine.live_trial import Phase
from nnilite._engine.rules import Rules
from nnilite.records import EndCause, Exited, ExperimentState, MetricKind, Reported, Started, TrialState
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
    st.tuples(st.just("interrupt"), INDEX, st.sampled_from([0, -15])),
    st.tuples(st.just("orphan"), INDEX),
    st.tuples(st.just("drill"), INDEX),
    st.tuples(st.just("be_stopped"), st.sampled_from([10.0, 100_000.0])),
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
    messages.Settings,
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
    asked = world.answer or any(isinstance(action, messages.Ask) for action in world.actions)
    assert not (asked and world.rules.state is ExperimentState.DONE), "done, and yet there may be more trials"
    busy = [live for live in world.rules.live.values() if live.phase is not Phase.QUEUED and live.cancel is None]
    assert len(busy) <= world.settings.concurrency
    states = [trial.state for trial in world.committed.trials.values()]
    assert world.rules.counts == {state: states.count(state) for state in TrialState}


def check_calls(world: World) -> None:
    """A result comes before the end of its trial, and each once."""
    seen: dict[str | None, list[str]] = {}
    for call in world.committed.calls_until(world.rules.calls):
        seen.setdefault(call.trial_job_id, []).append(call.kind)
    for kinds in seen.values():
        assert re.fullmatch("(generate )?((result )?end )+", " ".join([*kinds, ""]))


@settings(max_examples=RUNS, suppress_health_check=list(HealthCheck))
@given(SETTINGS, STEPS)
def test_whatever_happens_everything_ends_and_nothing_is_lost_or_doubled(
    settings: messages.Settings, steps: list[tuple[str, ...]]
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
    for trial in world.committed.trials.values():
        if trial.state is TrialState.SUCCEEDED:
            assert world.committed.attempts[trial.id, trial.attempt].state == JobState.SUCCEEDED
    world.wait_for_removals()
    assert not world.committed.removals
    assert all(job.removed for job in world.jobs.values()), "what a job held is never freed"


@settings(max_examples=RUNS // 5, suppress_health_check=list(HealthCheck))
@given(SETTINGS, STEPS)
def test_every_metric_of_a_job_that_lives_to_deliver_is_committed(
    settings: messages.Settings, steps: list[tuple[str, ...]]
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


@settings(max_examples=RUNS // 5, suppress_health_check=list(HealthCheck))
@given(SETTINGS, STEPS)
def test_a_stop_ends_everything_from_any_state(settings: messages.Settings, steps: list[tuple[str, ...]]) -> None:
    world = World(settings)
    world.start()
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
    world.give(messages.Stop(world.now))
    world.run_out()
    world.give(messages.Abandon(world.now))
    assert world.rules.state is ExperimentState.STOPPED
    assert all(trial.state.ended for trial in world.committed.trials.values())


def test_a_running_trial_of_which_nothing_is_heard_says_so_until_something_is() -> None:
    rules = Rules(messages.Settings(1), EMPTY, 0.0)
    rules.step(messages.Customized("t", {}, 0.0))
    rules.step(messages.Submitted("t", 0, "remote", {}, 0.0))
    reasons = []
    for state, reason in ((JobState.RUNNING, ""), (JobState.UNKNOWN, "box is down"), (JobState.RUNNING, "")):
        rules.step(messages.Polled("t", 0, JobStatus(state, reason), 1.0))
        trial = rules.live["t"].trial
        reasons.append((trial.state, trial.reason))
    assert reasons == [(TrialState.RUNNING, reason) for reason in ("", "box is down", "")]


def test_a_tuner_without_ideas_is_asked_again_when_a_result_came_while_it_was_asked() -> None:
    rules = Rules(messages.Settings(1), EMPTY, 0.0)
    rules.step(messages.TunerReady())
    rules.step(messages.Customized("t", {}, 0.0))
    rules.step(messages.Submitted("t", 0, "local", {}, 0.0))
    rules.step(messages.LiveEvents("t", 0, (Reported(0, MetricKind.FINAL, 0, 1.0, 1.0), Exited(1.0, 0)), 1.0))
    asked = rules.step(messages.Proposed((), 1, 1.0)).actions
    assert [type(action) for action in asked] == [messages.Ask]
    rules.step(messages.Proposed((), 1, 1.0))
    assert rules.state is ExperimentState.DONE


@pytest.mark.process
def test_a_result_must_have_numbers_for_the_objectives() -> None:
    rules = Rules(messages.Settings(3, objectives=("acc", "size")), EMPTY, 0.0)
    ended = []
    for trial, value in (("good", {"acc": 1, "size": 2}), ("half", {"acc": 1}), ("number", 1.0)):
        rules.step(messages.Customized(trial, {}, 0.0))
        rules.step(messages.Submitted(trial, 0, "local", {}, 0.0))
        records = rules.step(
            messages.LiveEvents(trial, 0, (Reported(0, MetricKind.FINAL, 0, value, 1.0), Exited(1.0, 0)), 1.0)
        ).records
        ended += [r.trial.reason for r in records if isinstance(r, messages.SaveTrial) and r.trial.state.ended]
    assert ended == ["", *["its final result is not a dict with numbers for acc and size"] * 2]


def test_trials_that_come_at_once_begin_one_after_the_other() -> None:
    rules = Rules(messages.Settings(2), EMPTY, 0.0)
    made = [rules.step(messages.Customized(trial, {}, 0.0)) for trial in "abc"]
    submitted = [action.trial.id for one in made for action in one.actions if isinstance(action, messages.Submit)]
    assert submitted == ["a", "b"]
    assert rules.live["c"].trial.reason == "waiting for a free slot: trialConcurrency is 2"


def test_a_trial_that_the_user_adds_raises_a_limit_that_is_reached_and_leaves_the_tuner_no_more() -> None:
    rules = Rules(messages.Settings(4, max_trials=1), EMPTY, 0.0)
    rules.step(messages.TunerReady())
    made = [rules.step(messages.Customized(trial, {}, 0.0)) for trial in "ab"]
    assert rules.settings.max_trials == 2
    assert any(isinstance(one, messages.SaveExperiment) for one in made[1].records)
    asked = [action for one in made for action in one.actions if isinstance(action, messages.Ask)]
    assert asked == []
    assert rules.reason == "maxTrialNumber (2) is reached"


def test_attempts_wait_for_each_other_the_longer_the_more_were_lost_or_failed() -> None:
    rules = running(Rules(messages.Settings(1, retries_lost=2, retries_failed=2), EMPTY, 0.0))
    live, delays = rules.live["t"], []
    for attempt, end in enumerate((JobState.LOST, JobState.FAILED, JobState.LOST, JobState.FAILED)):
        now = 100.0 * attempt
        rules.step(messages.Submitted("t", attempt, "kubernetes", {}, now))
        rules.step(messages.Polled("t", attempt, JobStatus(end, "gone", None), now))
        delays.append(live.not_before - now)
        rules.step(messages.Tick(now + 90.0, now + 90.0))
    assert delays == [1.0, 2.0, 4.0, 8.0]


def run_trial(rules: Rules, number: int, value: float) -> messages.Outcome:
    """Run a trial that its tuner proposes from its start to its end."""
    trial = f"t{number}"
    rules.step(messages.Proposed(((number, trial, {"x": 0}),), 1, 0.0))
    rules.step(messages.Submitted(trial, 0, "local", {}, 0.0))
    events = (Reported(0, MetricKind.FINAL, 0, value, 1.0), Exited(2.0, 0))
    return rules.step(messages.LiveEvents(trial, 0, events, 2.0))


def asks(outcome: messages.Outcome) -> bool:
    return any(isinstance(action, messages.Ask) for action in outcome.actions)


@pytest.mark.parametrize(("maximize", "poor", "good"), [(True, 0.89, 0.9), (False, 0.91, 0.9)])
def test_the_tuner_is_asked_no_more_once_a_result_is_good_enough(maximize: bool, poor: float, good: float) -> None:
    rules = Rules(messages.Settings(1, stop_at_value=0.9, maximize=maximize), EMPTY, 0.0)
    rules.step(messages.TunerReady())
    assert asks(run_trial(rules, 0, poor))
    assert not asks(run_trial(rules, 1, good))
    assert (rules.state, rules.reason) == (ExperimentState.DONE, "stopAtValue (0.9) is reached")
    assert asks(rules.step(messages.Changed(replace(rules.settings, stop_at_value=None))))


def test_a_result_that_breaks_a_constraint_is_not_good_enough() -> None:
    settings = messages.Settings(1, stop_at_value=0.9, violated=lambda value: "size > 5" if value == 1.0 else "")
    rules = Rules(settings, EMPTY, 0.0)
    rules.step(messages.TunerReady())
    assert asks(run_trial(rules, 0, 1.0))
    assert not asks(run_trial(rules, 1, 0.95))


def test_a_trial_that_runs_again_is_a_further_attempt_and_is_submitted_once() -> None:
    rules = running(Rules(messages.Settings(1, max_trials=1), EMPTY, 0.0))
    found = rules.step(messages.LiveEvents("t", 0, (Exited(5.0, 1),), 5.0))
    [failed] = [one.trial for one in found.records if isinstance(one, messages.SaveTrial) and one.trial.state.ended]
    again = rules.step(messages.Rerun(failed, 6.0))
    [order] = [action for action in again.actions if isinstance(action, messages.Submit)]
    assert (order.trial.id, order.attempt.number, rules.state) == ("t", 1, ExperimentState.NO_MORE_TRIAL)
    assert not rules.step(messages.Rerun(failed, 6.0)).actions  # two people have asked for it


def test_an_experiment_that_continues_has_no_end_yet() -> None:
    rules = running(Rules(messages.Settings(1, max_trials=1), EMPTY, 0.0))
    found = rules.step(messages.LiveEvents("t", 0, (Exited(5.0, 0),), 5.0))
    more = rules.step(messages.Changed(messages.Settings(1, max_trials=2)))
    ends = [[one.ended for one in o.records if isinstance(one, messages.SaveExperiment)][-1] for o in (found, more)]
    assert ends == [5.0, None]


def test_what_the_tuner_was_asked_for_before_the_time_was_over_still_runs() -> None:
    rules = Rules(messages.Settings(1, max_duration_s=10.0), EMPTY, 0.0)
    rules.step(messages.TunerReady())
    rules.step(messages.Tick(20.0, 20.0))
    assert rules.state is ExperimentState.NO_MORE_TRIAL, "it would not propose the same again when the limit is raised"
    rules.step(messages.Proposed(((0, "t", {"x": 0}),), 1, 21.0))
    rules.step(messages.Submitted("t", 0, "local", {}, 21.0))
    rules.step(messages.LiveEvents("t", 0, (Reported(0, MetricKind.FINAL, 0, 1.0, 22.0), Exited(22.0, 0)), 22.0))
    assert rules.state is ExperimentState.DONE


@pytest.mark.process
def test_a_tuner_is_not_asked_for_thousands_of_parameters_at_once() -> None:
    rules = Rules(messages.Settings(1000, max_trials=120), EMPTY, 0.0)
    asked: list[int] = []
    actions = rules.step(messages.TunerReady()).actions
    while asks := [action for action in actions if isinstance(action, messages.Ask)]:
        ids = asks[0].parameter_ids
        asked.append(len(ids))
        actions = rules.step(messages.Proposed(tuple((i, f"t{i}", {}) for i in ids), len(ids), 1.0)).actions
    assert asked == [50, 50, 20]
    assert len(rules.live) == 120


def running(rules: Rules, trial: str = "t") -> Rules:
    """With one trial that its service has."""
    rules.step(messages.Customized(trial, {}, 0.0))
    rules.step(messages.Submitted(trial, 0, "kubernetes", {}, 0.0))
    rules.step(messages.LiveEvents(trial, 0, (Started(0.0),), 0.0))
    return rules


INTERRUPTED = Exited(5.0, -15, "canceled by SIGTERM", EndCause.INTERRUPTED)


@pytest.mark.parametrize("state", [JobState.LOST, JobState.FAILED, JobState.CANCELED, JobState.SUCCEEDED])
def test_a_trial_that_its_platform_ended_is_lost_for_the_reason_that_the_platform_gives(state: JobState) -> None:
    rules = running(Rules(messages.Settings(1, retries_lost=1), EMPTY, 0.0))
    rules.step(messages.LiveEvents("t", 0, (INTERRUPTED,), 5.0))
    assert "waiting for the report of its platform" in rules.live["t"].trial.reason
    rules.step(messages.Polled("t", 0, JobStatus(state, "evicted: the node is drained", 143), 6.0))
    trial = rules.live["t"].trial
    assert (trial.state, trial.attempt) == (TrialState.WAITING, 1)
    assert trial.reason == "attempt 1 was lost: evicted: the node is drained; trying again"


def test_a_platform_that_does_not_say_why_it_ended_a_trial_is_not_waited_for_without_end() -> None:
    rules = running(Rules(messages.Settings(1, retries_lost=1), EMPTY, 0.0))
    rules.step(messages.LiveEvents("t", 0, (INTERRUPTED,), 5.0))
    rules.step(messages.Tick(60.0, 59.0))
    assert rules.live["t"].trial.attempt == 0
    rules.step(messages.Tick(70.0, 61.0))
    assert rules.live["t"].trial.attempt == 1


def test_a_failure_that_its_platform_tells_without_an_exit_code_gets_none() -> None:
    """Its command never ran: an image that cannot be pulled, say."""
    rules = running(Rules(messages.Settings(1), EMPTY, 0.0))
    found = rules.step(messages.Polled("t", 0, JobStatus(JobState.FAILED, "given up after 600 s"), 6.0))
    [attempt] = [record.attempt for record in found.records if isinstance(record, messages.SaveAttempt)]
    assert (attempt.state, attempt.exit_code) == (JobState.FAILED.value, None)


def test_a_trial_that_came_to_its_result_though_it_was_told_to_stop_has_succeeded() -> None:
    rules = running(Rules(messages.Settings(1, max_trials=1), EMPTY, 0.0))
    end = replace(INTERRUPTED, code=0)
    rules.step(messages.LiveEvents("t", 0, (Reported(0, MetricKind.FINAL, 0, 1.0, 1.0), end), 5.0))
    assert rules.counts[TrialState.SUCCEEDED] == 1


def test_a_trial_that_somebody_asked_to_end_is_canceled_and_not_lost() -> None:
    rules = running(Rules(messages.Settings(1, max_trials=1), EMPTY, 0.0))
    rules.step(messages.CancelTrial("t", 4.0))
    rules.step(messages.LiveEvents("t", 0, (INTERRUPTED,), 5.0))
    assert rules.counts[TrialState.USER_CANCELED] == 1


def test_a_trial_whose_platform_ended_it_can_be_canceled_while_the_reason_is_waited_for() -> None:
    rules = running(Rules(messages.Settings(1, max_trials=1), EMPTY, 0.0))
    rules.step(messages.LiveEvents("t", 0, (INTERRUPTED,), 5.0))
    rules.step(messages.CancelTrial("t", 6.0))
    assert rules.counts[TrialState.USER_CANCELED] == 1


def restarted(rules: Rules, *outcomes: messages.Outcome) -> Rules:
    """The rules of the next manager, from what was committed."""
    committed = Committed()
    for outcome in outcomes:
        committed.take(outcome.records)
    return Rules(rules.settings, committed.snapshot(), 10.0)


@pytest.mark.parametrize(("code", "state"), [(0, TrialState.SUCCEEDED), (1, TrialState.FAILED)])
def test_an_end_that_is_reported_before_the_service_has_answered_outlives_the_manager(
    code: int, state: TrialState
) -> None:
    rules = Rules(messages.Settings(1, max_trials=1), EMPTY, 0.0)
    made = rules.step(messages.Customized("t", {}, 0.0))
    told = rules.step(messages.LiveEvents("t", 0, (Started(1.0), Exited(2.0, code)), 2.0))
    rules = restarted(rules, made, told)
    rules.step(messages.TunerReady())
    rules.step(messages.Submitted("t", 0, "local", {}, 11.0))
    assert rules.counts[state] == 1


def test_the_end_that_waits_for_the_platforms_reason_outlives_the_manager() -> None:
    rules = Rules(messages.Settings(1, max_trials=1, retries_lost=1), EMPTY, 0.0)
    steps = (
        messages.Customized("t", {}, 0.0),
        messages.Submitted("t", 0, "k", {}, 0.0),
        messages.LiveEvents("t", 0, (INTERRUPTED,), 5.0),
    )
    rules = restarted(rules, *[rules.step(step) for step in steps])
    rules.step(messages.Polled("t", 0, JobStatus(JobState.FAILED, "the node is drained", 143), 11.0))
    trial = rules.live["t"].trial
    assert (trial.attempt, trial.reason) == (1, "attempt 1 was lost: the node is drained; trying again")


def test_a_service_that_refuses_a_job_whose_end_is_known_does_not_have_it_run_again() -> None:
    rules = Rules(messages.Settings(1, max_trials=1), EMPTY, 0.0)
    rules.step(messages.Customized("t", {}, 0.0))
    rules.step(messages.LiveEvents("t", 0, (Started(1.0), Exited(2.0, 0)), 2.0))
    rules.step(messages.SubmitRefused("t", 0, "no room", True, 3.0))
    assert rules.counts[TrialState.SUCCEEDED] == 1


FULL = "the trial's folder cannot be written: No space left on device"


def asked_again_after_a_keeper_that_could_not_begin(*, restart: bool) -> Rules:
    """On a disk that was full for a while neither the keeper could begin, nor its service note whom it has started."""
    rules = Rules(messages.Settings(1, max_trials=1), EMPTY, 0.0)
    steps = (
        messages.Customized("t", {}, 0.0),
        messages.LiveEvents("t", 0, (Exited(2.0, None, FULL),), 2.0),
        messages.SubmitRefused("t", 0, FULL, False, 3.0),
    )
    outcomes = [rules.step(step) for step in steps]
    if restart:
        rules = restarted(rules, *outcomes)
        rules.step(messages.TunerReady())
    return rules


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_a_keeper_that_could_not_begin_does_not_speak_for_the_next_one(restart: bool, early: bool) -> None:
    """`early`: the next one reports before its service has answered."""
    rules = asked_again_after_a_keeper_that_could_not_begin(restart=restart)
    rules.step(messages.Tick(20.0, 20.0))
    events = (Started(21.0), Reported(0, MetricKind.FINAL, 0, 1.0, 22.0), Exited(22.0, 0))
    if early:
        rules.step(messages.LiveEvents("t", 0, events, 22.0))
    rules.step(messages.Submitted("t", 0, "local", {}, 23.0))
    if not early:
        rules.step(messages.LiveEvents("t", 0, events, 24.0))
    assert rules.counts[TrialState.SUCCEEDED] == 1


@pytest.mark.parametrize("restart", [False, True])
def test_a_trial_that_no_keeper_could_begin_fails_for_that_reason(restart: bool) -> None:
    rules = asked_again_after_a_keeper_that_could_not_begin(restart=restart)
    rules.step(messages.Tick(20.0, 20.0))
    rules.step(messages.Submitted("t", 0, "local", {}, 23.0))
    found = rules.step(messages.Polled("t", 0, JobStatus(JobState.FAILED, "", 4), 24.0))
    [attempt] = [record.attempt for record in found.records if isinstance(record, messages.SaveAttempt)]
    assert (rules.counts[TrialState.FAILED], FULL in attempt.message) == (1, True)


@pytest.mark.parametrize("cause", [EndCause.ORPHANED, EndCause.CANCELED, EndCause.FENCED])
def test_a_trial_that_its_keeper_ended_and_nobody_of_ours_had_asked_is_lost(cause: EndCause) -> None:
    rules = running(Rules(messages.Settings(1, retries_lost=1), EMPTY, 0.0))
    rules.step(messages.LiveEvents("t", 0, (Exited(5.0, -15, "its manager was silent for 60 s", cause),), 5.0))
    trial = rules.live["t"].trial
    assert (trial.state, trial.attempt) == (TrialState.WAITING, 1)
    assert "was lost" in trial.reason
    assert "its manager was silent for 60 s" in trial.reason


def test_a_trial_that_its_keeper_ended_for_its_time_limit_is_canceled() -> None:
    rules = running(Rules(messages.Settings(1, max_trials=1, retries_lost=1), EMPTY, 0.0))
    rules.step(
        messages.LiveEvents("t", 0, (Exited(5.0, -15, "exceeded its time limit of 5 s", EndCause.DURATION),), 5.0)
    )
    assert rules.counts[TrialState.SYS_CANCELED] == 1


def test_time_that_the_manager_did_not_live_is_nobodys_silence() -> None:
    rules = running(Rules(messages.Settings(1, silence_s=100.0), EMPTY, 0.0))
    rules.step(messages.Tick(3600.0, 3.0))  # it was stopped for an hour
    assert rules.live["t"].trial.attempt == 0
    rules.step(messages.Tick(3800.0, 104.0))
    assert rules.live["t"].trial.attempt == 1
