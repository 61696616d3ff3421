"""Two runs of one attempt: a fault may start it twice, and what they report is never mixed."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from engine_bench import Bench, StartBench
from test_rules_simulation import EMPTY, running

from nnilite._engine import messages, report_reader, service_caller
from nnilite._engine.dedupe import Fenced, MetricCursor, fresh
from nnilite._engine.gate import EventGate
from nnilite._engine.rules import Rules
from nnilite._store.writer import Store
from nnilite.errors import ServiceError
from nnilite.records import (
    UNSTARTED,
    Attempt,
    EndCause,
    Exited,
    ExperimentState,
    JobState,
    KeeperEvent,
    MetricKind,
    Output,
    Reported,
    Started,
    Trial,
    TrialState,
)
from nnilite.service import JobStatus
from nnilite.testing.fakes import BadService

JOB = ("t0", 0)
DISK = "the trial's folder cannot be written: No space left on device"


async def test_a_job_that_names_another_run_than_the_owner_is_lost_and_not_waited_for_for_ever(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial can write to the record that names its run, and end its keeper."""
    monkeypatch.setattr(report_reader, "UNREAD_PATIENCE_S", 0.1)
    monkeypatch.setattr(service_caller, "POLL_EVERY_S", 0.02)
    bench = await start_bench(retries_lost=1)
    await bench.until(lambda: bench.engine.submitted())
    await bench.engine.commit_events(*JOB, curve("first", 0, 1))
    bench.fake.jobs["nni-e-t0-0"].events = curve("second", 0, 1, 2)
    bench.fake.jobs["nni-e-t0-0"].lose()
    await bench.until(lambda: "nni-e-t0-1" in bench.fake.jobs)
    known = await bench.store.find_attempt(JOB)
    assert known is not None
    assert (known[1].state, known[2].metrics) == (JobState.LOST, 2)


class _Silent(BadService):
    """Asked to take a job, it answers neither yes nor no."""

    bad = frozenset({"submit"})
    error = ServiceError("no answer")


def curve(run: str, *numbers: int) -> list[KeeperEvent]:
    """The events of a run from its start; `numbers` are the metrics' places."""
    base = 100.0 if run == "second" else 0.0
    metrics = [Reported(n, MetricKind.PERIODICAL, n, base + n, 1.0, run=run) for n in numbers]
    return [Started(1.0, run=run), *metrics]


def test_the_first_run_that_names_itself_owns_the_attempt() -> None:
    cursor = fresh(MetricCursor(), curve("first", 0, 1)).cursor
    with pytest.raises(Fenced):
        fresh(cursor, curve("second", 0, 1, 2))
    assert [event.run for event in fresh(cursor, curve("first", 2)).events] == ["first"]


def test_a_log_with_events_of_two_runs_gives_those_of_the_owner() -> None:
    both = [*curve("first", 0, 1), *curve("second", 0, 1, 2), Output("stdout", 0, b"x")]
    found = fresh(MetricCursor(), both)
    assert (found.cursor.metrics, {event.run for event in found.events}) == (2, {"first"})
    assert [piece.data for piece in found.output] == [b"x"]


def test_events_without_a_run_are_those_of_earlier_keepers_and_are_taken() -> None:
    assert fresh(MetricCursor(metrics=2, started=True), curve("", 2)).cursor.metrics == 3


async def test_a_second_run_is_fenced_also_by_the_next_manager(bench: Bench) -> None:
    await bench.until(lambda: bench.engine.submitted())
    await bench.engine.commit_events(*JOB, curve("first", 0, 1))
    with pytest.raises(Fenced):
        await bench.engine.commit_events(*JOB, curve("second", 0, 1, 2))
    known = await bench.store.find_attempt(JOB)
    assert known is not None
    assert (known[1].run, known[2].run, known[2].metrics) == ("first", "first", 2)


async def test_a_run_that_began_replaces_one_that_could_not(start_bench: StartBench) -> None:
    bench = await start_bench(service=_Silent)
    await bench.until(lambda: bench.engine.rules.live)
    could_not = Exited(1.0, None, DISK, EndCause.MACHINE, "first")
    await bench.engine.commit_events(*JOB, [could_not])
    answer = await bench.engine.commit_events(*JOB, curve("second", 0, 1))
    assert (answer.cancel, answer.metrics) == (False, 2)
    known = await bench.store.find_attempt(JOB)
    assert known is not None
    assert (known[1].run, known[1].reported_end) == ("second", None)


@pytest.mark.parametrize("answered", [False, True])
async def test_a_run_that_began_replaces_one_that_could_not_also_with_the_next_manager(
    start_bench: StartBench, answered: bool
) -> None:
    bench = await start_bench(service=_Silent)
    await bench.until(lambda: bench.engine.rules.live)
    await bench.engine.commit_events(*JOB, [Exited(1.0, None, DISK, EndCause.MACHINE, "first")])
    if answered:
        # The service has begun another keeper, so that the end of the first one is not that of the attempt.
        live = bench.engine.rules.live[JOB[0]]
        live.unanswered = True
        await bench.engine.do(messages.Submitted(*JOB, "fake", {"job": "nni-e-t0-0"}, bench.engine.now()))
        assert live.end is None
        # That the command runs is the word of the service, and not of the first keeper.
        running = JobStatus(JobState.RUNNING, started=5.0)
        await bench.engine.do(messages.Polled(*JOB, running, bench.engine.now()))
    next_gate = EventGate(bench.store, bench.engine)
    answer = await next_gate.commit_events(JOB, curve("second", 0, 1))
    assert (answer.cancel, answer.metrics) == (False, 2)
    with pytest.raises(Fenced):
        await next_gate.commit_events(JOB, [Exited(1.0, None, DISK, EndCause.MACHINE, "first")])


async def test_a_run_that_has_printed_already_replaces_one_that_could_not_begin(start_bench: StartBench) -> None:
    bench = await start_bench(service=_Silent)
    await bench.until(lambda: bench.engine.rules.live)
    await bench.engine.commit_events(*JOB, [Exited(1.0, None, DISK, EndCause.MACHINE, "first")])
    # On this machine a trial prints into the folder from which a new manager reads how much output it has.
    await bench.store.append_output(JOB, [Output("stdout", 0, b"printed by the second")], sync=False)
    next_gate = EventGate(bench.store, bench.engine)
    answer = await next_gate.commit_events(JOB, curve("second", 0, 1))
    assert (answer.cancel, answer.metrics) == (False, 2)


async def test_the_output_of_ranks_goes_on_where_it_was_when_another_manager_takes_over(
    start_bench: StartBench, tmp_path: Path
) -> None:
    bench = await start_bench(service=_Silent)
    await bench.until(lambda: bench.engine.rules.live)
    first = [Output("rank-3", 0, b"here "), Output("roles", 0, b"[]")]
    gates = [EventGate(bench.store, bench.engine, ranks=4) for _ in range(2)]
    assert (await gates[0].commit_events(JOB, first)).output == {"rank-3": 5, "roles": 2}
    later = await gates[1].commit_events(JOB, [Output("rank-3", 5, b"is 3\n")])
    assert later.output == {"rank-3": 10, "roles": 2}
    [log] = tmp_path.rglob("t0/0/roles/rank-3.log")
    assert log.read_bytes() == b"here is 3\n"
    assert (log.parent.parent / "roles.json").read_bytes() == b"[]"


async def test_a_run_that_prepares_its_start_is_not_canceled_for_one_that_could_not_begin(
    start_bench: StartBench,
) -> None:
    bench = await start_bench(service=_Silent)
    await bench.until(lambda: bench.engine.rules.live)
    await bench.engine.commit_events(*JOB, [Exited(1.0, None, DISK, EndCause.MACHINE, "first")])
    answer = await bench.engine.commit_events(*JOB, [])
    assert not answer.cancel


def failed_by_the_machine(rules: Rules, attempt: int) -> None:
    time = 70.0 * attempt
    rules.step(messages.Tick(time, time))
    rules.step(messages.Submitted("t", attempt, "local", {}, time))
    rules.step(messages.LiveEvents("t", attempt, (Exited(time, None, DISK, EndCause.MACHINE),), time))


def test_a_start_that_failed_for_its_machine_is_tried_again_and_counts_for_nothing() -> None:
    rules = Rules(messages.Settings(1, retries_lost=0, stop_on_same_error=1, max_failed=1), EMPTY, 0.0)
    rules.step(messages.TunerReady())
    rules.step(messages.Customized("t", {}, 0.0))
    for attempt in range(8):
        failed_by_the_machine(rules, attempt)
        live = rules.live["t"]
        assert (live.trial.state, live.trial.attempt, live.lost) == (TrialState.WAITING, attempt + 1, 0)
    assert f"{UNSTARTED}: {DISK}" in live.trial.reason
    assert live.not_before == 70.0 * 7 + 60.0
    failed_by_the_machine(rules, 8)
    assert (rules.counts[TrialState.FAILED], rules.state) == (1, ExperimentState.RUNNING)


def test_a_later_manager_counts_failed_starts_and_losses_apart(tmp_path: Path) -> None:
    attempts = [Attempt("t0", n, state=JobState.LOST, message=m) for n, m in enumerate([UNSTARTED, "gone", UNSTARTED])]
    with contextlib.closing(Store.create(tmp_path / "db", "abc", 1.0)) as store:
        store.write([messages.SaveTrial(Trial("t0", 0, {}, attempt=3)), *map(messages.SaveAttempt, attempts)])
        [live] = store.resume_reader.snapshot(True).live
    assert (live.lost, live.unstarted) == (1, 2)


def test_a_run_that_its_platform_saw_fenced_is_lost_and_not_failed() -> None:
    rules = running(Rules(messages.Settings(1, retries_lost=1), EMPTY, 0.0))
    rules.step(messages.Polled("t", 0, JobStatus(JobState.LOST, "fenced: another run reports"), 5.0))
    assert rules.live["t"].trial.attempt == 1


async def lost(bench: Bench) -> None:
    """Lose the only attempt of the trial."""
    await bench.until(lambda: bench.engine.submitted())
    await bench.engine.commit_events(*JOB, [Started(1.0)])
    bench.fake.jobs["nni-e-t0-0"].lose()
    await bench.until(lambda: bench.engine.rules.counts[TrialState.FAILED] == 1)


async def test_a_lost_trial_that_failed_after_all_keeps_the_result_that_comes_with_its_end(
    start_bench: StartBench,
) -> None:
    bench = await start_bench(retries_lost=0, max_trials=1)
    await lost(bench)
    await bench.engine.commit_events(*JOB, [Reported(0, MetricKind.FINAL, 0, 0.5, 2.0), Exited(3.0, 1)])
    trial, _ = await bench.manager.results.trial("t0")
    assert (trial.state, trial.value) == (TrialState.FAILED, 0.5)


async def test_a_lost_trial_that_ended_well_after_all_says_what_it_lacks(start_bench: StartBench) -> None:
    bench = await start_bench(retries_lost=0, max_trials=1)
    await lost(bench)
    odd = Reported(1, MetricKind.PERIODICAL, 0, None, 2.0, refused="it is too large")
    await bench.engine.commit_events(*JOB, [odd, Exited(3.0, 0)], over_gaps=True)
    trial, [attempt] = await bench.manager.results.trial("t0")
    notes = "metric 0 did not arrive; metric 1 was not kept: it is too large"
    assert (trial.state, attempt.state, attempt.message) == (TrialState.SUCCEEDED, JobState.SUCCEEDED, notes)
    assert trial.reason == f"it reported no final result, or only None; {notes}"


def test_a_later_manager_counts_exit_codes_as_the_first_one_did() -> None:
    last = Attempt("t", 1, state=JobState.FAILED, exit_code=1)
    live = messages.LiveTrial(Trial("t", 0, {}, attempt=2), last, failed=(75, 1))
    settings = messages.Settings(1, retries_lost=2, retries_failed=2, retry_exit_codes=frozenset({75}))
    restored = Rules(settings, replace(EMPTY, live=(live,)), 0.0).live["t"]
    assert (restored.lost, restored.failed) == (1, 1)


async def test_the_result_of_the_best_trial_goes_when_that_runs_again(start_bench: StartBench) -> None:
    bench = await start_bench(max_trials=3)
    for number, value in enumerate((0.5, 0.9, 0.7)):
        await bench.until(lambda number=number: f"nni-e-t{number}-0" in bench.fake.jobs)
        await bench.run_job(f"nni-e-t{number}-0", value)
    rules = bench.engine.rules
    await bench.until(lambda: rules.best is not None and rules.best.value == 0.9)
    await bench.manager.control.rerun(["t0", "t1"], None)
    assert rules.best is not None
    assert rules.best.id == "t2"
    await bench.until(lambda: "nni-e-t1-1" in bench.fake.jobs)
    await bench.run_job("nni-e-t1-1", 0.2)
    assert rules.best.id == "t2"


async def test_a_trial_that_two_requests_run_again_has_an_attempt_for_each(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await start_bench(max_trials=2)
    for number in range(2):
        await bench.until(lambda number=number: f"nni-e-t{number}-0" in bench.fake.jobs)
        await bench.run_job(f"nni-e-t{number}-0", 0.5)
    await bench.until(lambda: not bench.engine.rules.live)
    do = bench.engine.do

    async def crossed(message: messages.Input) -> None:
        monkeypatch.setattr(bench.engine, "do", do)
        await bench.manager.control.rerun(["t1"], None)
        await bench.until(lambda: "nni-e-t1-1" in bench.fake.jobs)
        await bench.run_job("nni-e-t1-1", 0.2)
        await bench.until(lambda: not bench.engine.rules.live)
        await do(message)

    monkeypatch.setattr(bench.engine, "do", crossed)
    await bench.manager.control.rerun(["t0", "t1"], None)
    await bench.until(lambda: "nni-e-t1-2" in bench.fake.jobs)
