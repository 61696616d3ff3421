"""The engine between a tuner, a store and training services that do as they like."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, StartBench

from nnilite._answers.queries import Profile
from nnilite._engine import messages, service_caller
from nnilite._engine.dedupe import Fenced, GapFound
from nnilite._engine.messages import Ask
from nnilite._store.async_store import AsyncStore
from nnilite._store.writer import Store
from nnilite.errors import Conflict, NoCapacity, NotFound, ServiceError, SpaceError, StoreError, TunerError
from nnilite.records import Exited, ExperimentState, MetricKind, Output, Reported, Started, TrialState
from nnilite.testing import fakes
from waiting import pause_async

pytestmark = pytest.mark.usefixtures("impatient")


def waiting_reasons(bench: Bench) -> list[str]:
    return [trial.reason for trial in bench.live if trial.state is TrialState.WAITING]


async def test_an_experiment_of_four_trials_is_done(bench: Bench) -> None:
    await bench.run_all(4)
    await bench.until(lambda: bench.engine.rules.state is ExperimentState.DONE)
    await bench.until(lambda: [call.kind for call in bench.tuner.calls] == ["result", "end"] * 4)


async def test_a_service_without_room_is_asked_again_and_the_trial_says_why_it_waits(bench: Bench) -> None:
    bench.fake.refuse_with = NoCapacity("all 2 GPUs are taken")
    await bench.until(lambda: waiting_reasons(bench) == ["all 2 GPUs are taken"] * 2)
    bench.fake.refuse_with = None
    await bench.run_all(4)


async def test_a_service_that_cannot_now_is_asked_again_later(bench: Bench) -> None:
    bench.fake.refuse_with = ServiceError("connection refused")
    await bench.until(lambda: any("connection refused (trying again" in r for r in waiting_reasons(bench)))
    bench.fake.refuse_with = None
    await bench.run_all(4)


@pytest.mark.parametrize("service", [fakes.SlowService, fakes.BadService, fakes.NeverService])
async def test_a_misbehaving_service_does_not_hold_up_the_engine(start_bench: StartBench, service: Any) -> None:
    bench = await start_bench(service=service)
    await bench.until(lambda: len(bench.live) == 2)
    await asyncio.wait_for(bench.engine.do(messages.Customized("mine", {}, bench.engine.now())), 30)
    assert all(waiting_reasons(bench))
    await asyncio.wait_for(bench.engine.do(messages.Stop(bench.engine.now())), 30)


async def test_a_fault_of_the_engine_itself_ends_it_with_that_error(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: service_caller.ServiceCaller) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(service_caller.ServiceCaller, "run", fail)
    bench = await start_bench()
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        await asyncio.wait_for(bench.ended, 30)


@pytest.mark.parametrize("lie", ["short", "garbage", "state", "alive", "future"])
async def test_a_lying_service_does_no_harm_to_trials_whose_keepers_speak(start_bench: StartBench, lie: str) -> None:
    def service(*arguments: Any) -> fakes.LyingService:
        made = fakes.LyingService(*arguments)
        made.lie = lie
        return made

    bench = await start_bench(service=service)
    await bench.run_all(4)
    await bench.until(lambda: bench.engine.rules.state is ExperimentState.DONE)
    assert bench.engine.rules.counts[TrialState.SUCCEEDED] == 4


async def test_a_lost_job_is_tried_again_and_its_old_keeper_is_turned_away(bench: Bench) -> None:
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    bench.fake.jobs["nni-e-t0-0"].lose("the node is gone")
    await bench.until(lambda: "nni-e-t0-1" in bench.fake.jobs)
    with pytest.raises(Fenced):
        await bench.engine.commit_events("t0", 0, [Reported(0, MetricKind.FINAL, 0, 9.0, 1.0)])
    await bench.run_all(4)
    assert bench.engine.rules.best is not None
    assert bench.engine.rules.best.value == 1.0


async def test_a_silent_attempt_is_given_up_and_tried_again(start_bench: StartBench) -> None:
    def service(*arguments: Any) -> fakes.LyingService:
        made = fakes.LyingService(*arguments)
        made.lie = "garbage"  # no word on any job
        return made

    bench = await start_bench(service=service, silence_s=0.5, max_trials=1)
    await bench.until(lambda: "nni-e-t0-1" in bench.fake.jobs)
    assert bench.fake.jobs["nni-e-t0-0"].cancels == 1


async def test_what_a_dead_keeper_left_is_taken_before_its_job_is_given_up(bench: Bench) -> None:
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    job = bench.fake.jobs["nni-e-t0-0"]
    job.events = [Started(1.0), Reported(0, MetricKind.FINAL, 0, 7.0, 30)]
    job.finish(0)
    await bench.until(lambda: bench.engine.rules.best is not None)
    assert bench.engine.rules.best is not None
    assert bench.engine.rules.best.value == 7.0


async def test_a_trial_with_several_final_results_says_which_one_counts(bench: Bench) -> None:
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    finals = [Reported(number, MetricKind.FINAL, 0, 9.0 - number, 1.0) for number in range(3)]
    await bench.engine.commit_events("t0", 0, [Started(1.0), *finals, Exited(2.0, 0)])
    trial, *_ = await bench.store.find_attempt(("t0", 0)) or [None]
    assert trial is not None
    assert trial.value == 9.0
    assert trial.reason.startswith("it reported more than one final result; the first one counts (")


async def test_a_result_that_comes_after_its_trial_was_given_up_for_lost_still_counts(start_bench: StartBench) -> None:
    bench = await start_bench(retries_lost=0, max_trials=1)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    bench.fake.jobs["nni-e-t0-0"].lose()
    await bench.until(lambda: bench.engine.rules.counts[TrialState.FAILED] == 1)
    await bench.run_job("nni-e-t0-0", value=5.0)
    assert bench.engine.rules.counts[TrialState.SUCCEEDED] == 1
    assert bench.engine.rules.counts[TrialState.FAILED] == 0


async def test_a_batch_that_begins_too_late_is_refused_and_a_repeated_one_changes_nothing(bench: Bench) -> None:
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    metrics = [Reported(i, MetricKind.PERIODICAL, i, i, 1.0) for i in range(3)]
    with pytest.raises(GapFound):
        await bench.engine.commit_events("t0", 0, metrics[1:])
    for _ in range(2):
        assert (await bench.engine.commit_events("t0", 0, metrics)).metrics == 3


async def test_output_of_a_worker_elsewhere_is_kept_in_the_trials_folder(bench: Bench, tmp_path: Path) -> None:
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    for offset, data in ((0, b"one\n"), (0, b"one\ntwo\n"), (8, b"three\n")):
        await bench.engine.commit_events("t0", 0, [Output("stdout", offset, data)])
    assert (tmp_path / "trials/t0/0/trial.stdout").read_bytes() == b"one\ntwo\nthree\n"


class FullDisk(AsyncStore):
    """Cannot write for a while."""

    full = True
    tries = 0

    async def commit(self, records: Any) -> None:
        self.tries += 1
        if self.full:
            raise StoreError("no space left", busy=True)
        await super().commit(records)


async def test_nothing_is_acknowledged_while_it_cannot_be_committed(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._engine.engine._STORE_RETRY_S", 0.05)
    bench = await start_bench(store=FullDisk)
    waiting = asyncio.create_task(bench.engine.do(messages.Customized("mine", {}, bench.engine.now())))
    await bench.until(lambda: bench.engine.trouble)
    before = bench.store.tries  # type: ignore[attr-defined]
    await bench.until(lambda: bench.store.tries > before + 2)  # type: ignore[attr-defined]
    assert not waiting.done()
    bench.store.full = False  # type: ignore[attr-defined]
    await asyncio.wait_for(waiting, 30)


async def test_the_tuner_hears_of_a_result_whose_commit_waits_and_so_does_one_that_replaces_it(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._engine.engine._STORE_RETRY_S", 0.05)
    write, full = Store.write, asyncio.Event()

    def write_or_fail(store: Store, records: Any, **options: bool) -> int:
        # Only the commit that is meant: one before it that waits would keep the step itself waiting.
        if full.is_set() and any(isinstance(record, messages.SaveMetric) for record in records):
            raise StoreError("no space left", busy=True)
        return write(store, records, **options)

    monkeypatch.setattr(Store, "write", write_or_fail)
    bench = await start_bench()
    await bench.until(lambda: bench.fake.jobs)
    full.set()
    end = asyncio.create_task(bench.run_job(next(iter(bench.fake.jobs))))
    await bench.until(lambda: [call.kind for call in bench.tuner.calls] == ["result", "end"])
    await bench.until(lambda: bench.engine.trouble)
    assert not end.done()
    read_by_another = asyncio.create_task(bench.store.calls(1000))
    histories = asyncio.create_task(bench.store.histories())
    await pause_async(0.2, "in which both could be read, if nothing held them up")
    assert not read_by_another.done()
    assert not histories.done()
    assert not bench.store.settled
    full.clear()
    await asyncio.wait_for(end, 30)
    known = await asyncio.wait_for(read_by_another, 30)
    assert all(call in known for call in bench.tuner.calls[:2])
    await asyncio.wait_for(histories, 30)
    await bench.until(lambda: bench.store.settled)  # the next trial may be on its way into the database now


async def test_the_assessor_sees_every_intermediate_result_once_and_in_order(start_bench: StartBench) -> None:
    bench = await start_bench(assess=True)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    for batch in ((0, 3), (1, 5), (5, 6)):
        metrics = [Reported(i, MetricKind.PERIODICAL, i, i, 1.0) for i in range(*batch)]
        await bench.engine.commit_events("t0", 0, metrics)
    await bench.until(lambda: sum(len(v) for _, v in bench.tuner.assessed) == 6)
    assert [value for _, values in bench.tuner.assessed for value in values] == list(range(6))


async def test_the_tuner_learns_what_a_trial_had_reached_when_it_was_stopped_early(start_bench: StartBench) -> None:
    bench = await start_bench(assess=True)
    bench.tuner.poor.add("t0")
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    metrics = [Reported(i, MetricKind.PERIODICAL, i, {"default": i / 2}, 1.0) for i in range(3)]
    await bench.engine.commit_events("t0", 0, [Started(1.0), *metrics])
    await bench.until(lambda: len(bench.tuner.calls) == 2)
    result, end = bench.tuner.calls
    assert (result.kind, result.trial_job_id, result.value) == ("result", "t0", {"default": 1.0})
    assert (end.kind, end.trial_job_id, end.success) == ("end", "t0", False)


@pytest.mark.parametrize(
    ("settings", "code", "sentence"),
    [
        ({"stop_on_same_error": 2}, 1, "2 trials in a row failed with the same error: exit code 1"),
        ({"max_failed": 2}, 1, "2 trials have failed"),
    ],
)
async def test_too_many_failures_stop_the_experiment_and_say_so(
    start_bench: StartBench, settings: dict[str, int], code: int, sentence: str
) -> None:
    bench = await start_bench(**settings)
    for name in ("nni-e-t0-0", "nni-e-t1-0"):
        await bench.until(lambda name=name: name in bench.fake.jobs)
        await bench.run_job(name, code=code)
    await bench.until(lambda: bench.engine.rules.state is ExperimentState.ERROR)
    assert sentence in bench.engine.rules.reason


async def test_a_trial_that_finds_no_room_does_not_hold_up_the_next_one(start_bench: StartBench) -> None:
    class Choosy(fakes.FakeService):
        async def submit(self, job: Any) -> Any:
            if job.trial == "t0":
                raise NoCapacity("no machine with the label `rare` is free")
            return await super().submit(job)

    bench = await start_bench(service=Choosy)
    await bench.until(lambda: "nni-e-t1-0" in bench.fake.jobs)
    assert waiting_reasons(bench)[0] == "no machine with the label `rare` is free"


async def test_a_tuner_that_is_awaited_for_long_is_the_reason_for_standing_still(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.until(lambda: bench.fake.jobs and bench.engine.slowness._asked is None)  # the first trials are proposed
    assert (await bench.manager.profile()).reason == ""
    bench.engine.slowness.queued(Ask((9,), 0))
    later = bench.engine.now() + 60.0
    monkeypatch.setattr(bench.engine.slowness, "_now", lambda: later)
    assert (await bench.manager.profile()).reason.startswith("new parameters were requested 60 s ago, and the tuner")


@pytest.mark.parametrize("fault", ["fails", "hangs"])
async def test_a_database_that_cannot_be_read_keeps_no_profile_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A page that shows why an experiment is paused lives on profiles, and so does its stream."""
    reads = []

    async def ask(*_: Any) -> list[str]:
        reads.append(fault)
        if fault == "hangs":
            await asyncio.Event().wait()
        raise StoreError("Too many open files")

    bench.manager.profiles._notices._known = ["known before"]
    monkeypatch.setattr(bench.manager.results, "ask", ask)
    found = [(await asyncio.wait_for(bench.manager.profile(), 60)).notices for _ in range(2)]
    assert found == [["known before"]] * 2
    assert len(reads) == (1 if fault == "hangs" else 2)


async def test_a_profile_is_made_for_the_stream_only_if_somebody_reads_it(bench: Bench) -> None:
    made = []

    async def profile() -> Profile:
        made.append(1)
        return await bench.manager.profile()

    publisher = bench.manager._parts.publisher
    running = asyncio.create_task(publisher.run(profile))
    await bench.until(lambda: bench.fake.jobs)
    await bench.run_job("nni-e-t0-0")
    await bench.until(lambda: not publisher._dirty.is_set())
    assert not made
    reader = bench.manager.subscribe()
    await bench.run_job("nni-e-t1-0")
    await bench.until(lambda: made)
    reader.close()
    running.cancel()


async def test_results_are_imported_once(bench: Bench) -> None:
    for expected in (2, 1):
        found = [({"x": 1, "y": 2}, 0.5), ({"x": expected}, float("nan"))]
        assert await bench.manager.control.import_data(found) == (expected, len(found) - expected, "")
    assert await bench.manager.control.import_data([({"y": 2, "x": 1}, 0.5), ({"x": 1}, float("nan"))]) == (0, 2, "")


async def test_a_search_space_that_the_tuner_refuses_is_not_taken(bench: Bench) -> None:
    space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    await bench.manager.control.update({"search_space": space})
    for wrong, error in (({**space, "layer": space["x"]}, TunerError), ({"x": 1}, SpaceError)):
        with pytest.raises(error):
            await bench.manager.control.update({"search_space": wrong, "max_trials": 9})
    assert (await bench.manager.profile()).space == space
    assert bench.engine.rules.settings.max_trials == 4
    await bench.until(lambda: [call.kind for call in bench.tuner.calls] == ["space"])


async def test_failures_with_a_success_between_them_are_not_in_a_row(start_bench: StartBench) -> None:
    bench = await start_bench(stop_on_same_error=2, concurrency=1)
    for number, code in enumerate((1, 0, 1, 0)):
        name = f"nni-e-t{number}-0"
        await bench.until(lambda name=name: name in bench.fake.jobs)
        await bench.run_job(name, code=code)
    await bench.until(lambda: bench.engine.rules.state is ExperimentState.DONE)


async def test_a_stop_while_the_last_reports_are_read_does_not_wait_for_them(bench: Bench) -> None:
    await bench.until(lambda: len(bench.fake.jobs) == 2)
    for job in bench.fake.jobs.values():
        job.events = [Started(1.0), Reported(0, MetricKind.FINAL, 0, 7.0, 30)]
    await bench.engine.do(messages.Stop(bench.engine.now()))
    await bench.until(lambda: bench.ended.done(), timeout_s=60.0)


async def test_after_the_end_nothing_is_acknowledged(bench: Bench) -> None:
    await bench.until(lambda: len(bench.fake.jobs) == 2)
    await bench.engine.do(messages.Stop(bench.engine.now()))
    await bench.until(lambda: bench.engine.rules.state is ExperimentState.STOPPED)
    await bench.until(lambda: bench.ended.done(), timeout_s=60.0)
    with pytest.raises(ServiceError, match="has stopped"):
        await bench.engine.commit_events("t0", 0, [Reported(0, MetricKind.FINAL, 0, 9.0, 1.0)])


async def test_reports_in_a_platforms_log_are_followed_while_the_job_runs(start_bench: StartBench) -> None:
    bench = await start_bench(follow={"fake"})
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    job = bench.fake.jobs["nni-e-t0-0"]
    job.events = [Started(1.0), Reported(0, MetricKind.PERIODICAL, 0, 7.0, 30)]
    job.start()
    await bench.until(lambda: bench.engine.rules.live["t0"].last_intermediate == 7.0)


async def test_the_platforms_word_on_an_attempt_that_its_keeper_ended_meanwhile_harms_nobody(
    start_bench: StartBench,
) -> None:
    late: list[Bench] = []

    class Slow(fakes.FakeService):
        async def reports(self, handle: Any) -> Any:
            if handle["job"] == "nni-e-t0-0":
                await late[0].engine.commit_events("t0", 0, [Exited(1.0, 75)])
                await late[0].until(lambda: late[0].engine.rules.live["t0"].trial.attempt == 1)
            return ()

    bench = await start_bench(service=Slow, retry_exit_codes=frozenset({75}), retries_failed=1)
    late.append(bench)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    bench.fake.jobs["nni-e-t0-0"].finish(75)
    await bench.until(lambda: "nni-e-t0-1" in bench.fake.jobs)
    await bench.run_all(4)


@pytest.mark.parametrize("gap", [Reported(5, MetricKind.PERIODICAL, 0, 7.0, 30), Output("stdout", 99, b"late")])
async def test_reports_of_a_platform_that_lack_some_harm_nobody(
    bench: Bench, gap: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    bench.fake.jobs["nni-e-t0-0"].events = [gap]
    bench.fake.jobs["nni-e-t0-0"].finish()
    await bench.run_all(4)


class ElasticService(fakes.FakeService):
    """Jobs may have up to four workers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.workers: dict[str, int] = {}
        self.answers = asyncio.Event()
        self.answers.set()

    async def scale(self, handle: Any, workers: int) -> None:
        await self.answers.wait()
        if workers > 4:
            raise Conflict("5 workers are more than maxReplicas 4")
        self.workers[handle["job"]] = workers

    async def take_node(self, handle: Any) -> None:
        if not self.workers.get(handle["job"]):
            raise Conflict("the trial has no node to spare now")
        self.workers[handle["job"]] -= 1


async def test_a_drill_takes_a_node_of_an_elastic_trial_which_goes_on(start_bench: StartBench) -> None:
    bench = await start_bench(service=ElasticService, concurrency=1)
    bench.manager.control._profiles.about.config["distributed"] = {"nodes": {"min": 1, "max": 3}}
    await bench.until(lambda: bench.engine.submitted())
    await bench.engine.commit_events("t0", 0, [Started(1.0)])
    bench.fake.workers["nni-e-t0-0"] = 2  # type: ignore[attr-defined]
    await bench.until(lambda: bench.engine.rules.live["t0"].may_be_drilled)
    await bench.manager.control.interrupt_trial("t0")
    assert bench.fake.workers == {"nni-e-t0-0": 1}  # type: ignore[attr-defined]
    bench.fake.workers.clear()  # type: ignore[attr-defined]
    with pytest.raises(Conflict, match="no node to spare now"):
        await bench.manager.control.interrupt_trial("t0")
    await bench.run_job("nni-e-t0-0")


async def test_an_elastic_trial_is_scaled_by_its_service_and_refusals_are_told(start_bench: StartBench) -> None:
    bench = await start_bench(service=ElasticService, concurrency=1)
    await bench.until(lambda: bench.engine.submitted())
    await bench.manager.control.scale_trial("t0", 3)
    assert bench.fake.workers == {"nni-e-t0-0": 3}  # type: ignore[attr-defined]
    with pytest.raises(Conflict, match="more than maxReplicas 4"):
        await bench.manager.control.scale_trial("t0", 5)
    with pytest.raises(NotFound):
        await bench.manager.control.scale_trial("nope", 3)
    await bench.run_job("nni-e-t0-0")
    with pytest.raises(Conflict, match="has ended"):
        await bench.manager.control.scale_trial("t0", 2)


async def test_a_trial_that_is_on_no_platform_yet_cannot_be_scaled(start_bench: StartBench) -> None:
    bench = await start_bench(service=ElasticService)
    bench.fake.refuse_with = NoCapacity("full")
    await bench.until(lambda: waiting_reasons(bench) == ["full"] * 2)
    with pytest.raises(Conflict, match="not on its platform yet"):
        await bench.manager.control.scale_trial("t0", 3)


async def test_a_service_that_does_not_scale_in_time_is_told_of_and_goes_on(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_caller, "ASKED_TIMEOUT_S", 0.1)
    bench = await start_bench(service=ElasticService)
    assert isinstance(bench.fake, ElasticService)
    await bench.until(lambda: bench.engine.submitted())
    bench.fake.answers.clear()
    with pytest.raises(ServiceError, match="did not respond"):
        await bench.manager.control.scale_trial("t0", 3)
    bench.fake.answers.set()
    monkeypatch.setattr(service_caller, "ASKED_TIMEOUT_S", 60.0)
    await bench.manager.control.scale_trial("t0", 3)


async def test_who_asks_for_a_stop_while_the_manager_is_ending_is_told_that_it_stops(start_bench: StartBench) -> None:
    bench = await start_bench(max_trials=1)
    await bench.manager.control.stop()
    await bench.ended
    await bench.manager.control.stop()
    assert bench.engine.rules.state is ExperimentState.STOPPED


class ReadService(fakes.FakeService):
    """Counts how often reports are read."""

    read = 0

    async def reports(self, handle: Any) -> Any:
        self.read += 1
        return await super().reports(handle)


@pytest.mark.parametrize(("patience_s", "read"), [(600.0, False), (0.0, True)])
async def test_reports_are_left_to_a_keeper_as_long_as_it_delivers(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch, patience_s: float, read: bool
) -> None:
    monkeypatch.setattr("nnilite._engine.state._DELIVERING_S", patience_s)
    bench = await start_bench(service=ReadService, max_trials=1)
    await bench.until(lambda: bench.fake.jobs)
    name = next(iter(bench.fake.jobs))
    first = [Started(1.0), Reported(0, MetricKind.PERIODICAL, 0, 0.5, 1.5)]
    await bench.engine.commit_events(name.split("-")[2], 0, first)
    bench.fake.jobs[name].finish()
    polled = bench.fake.calls.count("poll")
    assert isinstance(bench.service, ReadService)
    await bench.until(lambda: bench.service.read or bench.fake.calls.count("poll") > polled + 2)
    assert bool(bench.service.read) is read
