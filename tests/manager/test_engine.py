"""The engine between a tuner, a store and training services that do as they like."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, impatient, play

from nnilite._engine import messages as s
from nnilite._engine import service_caller
from nnilite._engine.dedupe import Fenced, GapFound
from nnilite._store.async_store import AsyncStore
from nnilite._store.writer import Store
from nnilite.errors import Conflict, NoCapacity, NotFound, ServiceError, SpaceError, StoreError, TunerError
from nnilite.records import Exited, ExperimentState, MetricKind, Output, Reported, Started, TrialState
from nnilite.testing import fakes
from waiting import pause_async

__all__ = ["impatient"]


def waiting_reasons(running: Bench) -> list[str]:
    return [trial.reason for trial in running.live if trial.state is TrialState.WAITING]


def test_an_experiment_of_four_trials_is_done(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.run_all(4)
        await running.until(lambda: running.engine.rules.state is ExperimentState.DONE)
        await running.until(lambda: [call.kind for call in running.tuner.calls] == ["result", "end"] * 4)

    play(tmp_path, scenario)


def test_a_service_without_room_is_asked_again_and_the_trial_says_why_it_waits(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        running.fake.refuse_with = NoCapacity("all 2 GPUs are taken")
        await running.until(lambda: waiting_reasons(running) == ["all 2 GPUs are taken"] * 2)
        running.fake.refuse_with = None
        await running.run_all(4)

    play(tmp_path, scenario)


def test_a_service_that_cannot_now_is_asked_again_later(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        running.fake.refuse_with = ServiceError("connection refused")
        await running.until(lambda: any("connection refused (trying again" in r for r in waiting_reasons(running)))
        running.fake.refuse_with = None
        await running.run_all(4)

    play(tmp_path, scenario)


@pytest.mark.parametrize("service", [fakes.SlowService, fakes.BadService, fakes.NeverService])
def test_a_misbehaving_service_does_not_hold_up_the_engine(tmp_path: Path, service: Any) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: len(running.live) == 2)
        await asyncio.wait_for(running.engine.do(s.Customized("mine", {}, running.engine.now())), 1.0)
        assert all(waiting_reasons(running))
        await asyncio.wait_for(running.engine.do(s.Stop(running.engine.now())), 1.0)

    play(tmp_path, scenario, service=service)


@pytest.mark.parametrize("lie", ["short", "garbage", "state", "alive", "future"])
def test_a_lying_service_does_no_harm_to_trials_whose_keepers_speak(tmp_path: Path, lie: str) -> None:
    async def scenario(running: Bench) -> None:
        await running.run_all(4)
        await running.until(lambda: running.engine.rules.state is ExperimentState.DONE)
        assert running.engine.rules.counts[TrialState.SUCCEEDED] == 4

    def service(*arguments: Any) -> fakes.LyingService:
        made = fakes.LyingService(*arguments)
        made.lie = lie
        return made

    play(tmp_path, scenario, service=service)


def test_a_lost_job_is_tried_again_and_its_old_keeper_is_turned_away(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: "nni-e-t0-0" in running.fake.jobs)
        running.fake.jobs["nni-e-t0-0"].lose("the node is gone")
        await running.until(lambda: "nni-e-t0-1" in running.fake.jobs)
        with pytest.raises(Fenced):
            await running.engine.take("t0", 0, [Reported(0, MetricKind.FINAL, 0, 9.0, 1.0)])
        await running.run_all(4)
        assert running.engine.rules.best is not None
        assert running.engine.rules.best.value == 1.0

    play(tmp_path, scenario)


def test_a_silent_attempt_is_given_up_and_tried_again(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: "nni-e-t0-1" in running.fake.jobs)
        assert running.fake.jobs["nni-e-t0-0"].cancels == 1

    def service(*arguments: Any) -> fakes.LyingService:
        made = fakes.LyingService(*arguments)
        made.lie = "garbage"  # no word on any job
        return made

    play(tmp_path, scenario, service=service, silence_s=0.5, max_trials=1)


def test_what_a_dead_keeper_left_is_taken_before_its_job_is_given_up(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: "nni-e-t0-0" in running.fake.jobs)
        job = running.fake.jobs["nni-e-t0-0"]
        job.events = [Started(1.0), Reported(0, MetricKind.FINAL, 0, 7.0, 2.0)]
        job.finish(0)
        await running.until(lambda: running.engine.rules.best is not None)
        assert running.engine.rules.best is not None
        assert running.engine.rules.best.value == 7.0

    play(tmp_path, scenario)


def test_a_result_that_comes_after_its_trial_was_given_up_for_lost_still_counts(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: "nni-e-t0-0" in running.fake.jobs)
        running.fake.jobs["nni-e-t0-0"].lose()
        await running.until(lambda: running.engine.rules.counts[TrialState.FAILED] == 1)
        await running.run_job("nni-e-t0-0", value=5.0)
        assert running.engine.rules.counts[TrialState.SUCCEEDED] == 1
        assert running.engine.rules.counts[TrialState.FAILED] == 0

    play(tmp_path, scenario, retries_lost=0, max_trials=1)


def test_a_batch_that_begins_too_late_is_refused_and_a_repeated_one_changes_nothing(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: "nni-e-t0-0" in running.fake.jobs)
        metrics = [Reported(i, MetricKind.PERIODICAL, i, i, 1.0) for i in range(3)]
        with pytest.raises(GapFound):
            await running.engine.take("t0", 0, metrics[1:])
        for _ in range(2):
            assert (await running.engine.take("t0", 0, metrics)).metrics == 3

    play(tmp_path, scenario)


def test_output_of_a_worker_elsewhere_is_kept_in_the_trials_folder(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: "nni-e-t0-0" in running.fake.jobs)
        for offset, data in ((0, b"one\n"), (0, b"one\ntwo\n"), (8, b"three\n")):
            await running.engine.take("t0", 0, [Output("stdout", offset, data)])
        assert (tmp_path / "trials/t0/0/trial.stdout").read_bytes() == b"one\ntwo\nthree\n"

    play(tmp_path, scenario)


class FullDisk(AsyncStore):
    """Cannot write for a while."""

    full = True
    tries = 0

    async def commit(self, records: Any) -> None:
        self.tries += 1
        if self.full:
            raise StoreError("no space left", busy=True)
        await super().commit(records)


def test_nothing_is_acknowledged_while_it_cannot_be_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnilite._engine.engine._STORE_RETRY_S", 0.05)

    async def scenario(running: Bench) -> None:
        waiting = asyncio.create_task(running.engine.do(s.Customized("mine", {}, running.engine.now())))
        await running.until(lambda: running.engine.trouble)
        before = running.store.tries  # type: ignore[attr-defined]
        await running.until(lambda: running.store.tries > before + 2)  # type: ignore[attr-defined]
        assert not waiting.done()
        running.store.full = False  # type: ignore[attr-defined]
        await asyncio.wait_for(waiting, 2.0)

    play(tmp_path, scenario, store=FullDisk)


def test_the_tuner_hears_of_a_result_whose_commit_waits_and_so_does_one_that_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._engine.engine._STORE_RETRY_S", 0.05)
    write, full = Store.write, asyncio.Event()

    def write_or_fail(store: Store, records: Any) -> int:
        # Only the commit that is meant: one before it that waits would keep the step itself waiting.
        if full.is_set() and any(isinstance(record, s.SaveMetric) for record in records):
            raise StoreError("no space left", busy=True)
        return write(store, records)

    monkeypatch.setattr(Store, "write", write_or_fail)

    async def scenario(running: Bench) -> None:
        await running.until(lambda: running.fake.jobs)
        full.set()
        end = asyncio.create_task(running.run_job(next(iter(running.fake.jobs))))
        await running.until(lambda: [call.kind for call in running.tuner.calls] == ["result", "end"])
        await running.until(lambda: running.engine.trouble)
        assert not end.done()
        read_by_another = asyncio.create_task(running.store.calls(1000))
        histories = asyncio.create_task(running.store.histories())
        await pause_async(0.2, "in which both could be read, if nothing held them up")
        assert not read_by_another.done()
        assert not histories.done()
        assert not running.store.settled
        full.clear()
        await asyncio.wait_for(end, 2.0)
        known = await asyncio.wait_for(read_by_another, 2.0)
        assert all(call in known for call in running.tuner.calls[:2])
        await asyncio.wait_for(histories, 2.0)
        assert running.store.settled

    play(tmp_path, scenario)


def test_the_assessor_sees_every_intermediate_result_once_and_in_order(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: "nni-e-t0-0" in running.fake.jobs)
        for batch in ((0, 3), (1, 5), (5, 6)):
            metrics = [Reported(i, MetricKind.PERIODICAL, i, i, 1.0) for i in range(*batch)]
            await running.engine.take("t0", 0, metrics)
        await running.until(lambda: sum(len(v) for _, v in running.tuner.assessed) == 6)
        assert [value for _, values in running.tuner.assessed for value in values] == list(range(6))

    play(tmp_path, scenario, assess=True)


def test_the_tuner_learns_what_a_trial_had_reached_when_it_was_stopped_early(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        running.tuner.poor.add("t0")
        await running.until(lambda: "nni-e-t0-0" in running.fake.jobs)
        metrics = [Reported(i, MetricKind.PERIODICAL, i, {"default": i / 2}, 1.0) for i in range(3)]
        await running.engine.take("t0", 0, [Started(1.0), *metrics])
        await running.until(lambda: len(running.tuner.calls) == 2)
        result, end = running.tuner.calls
        assert (result.kind, result.trial_job_id, result.value) == ("result", "t0", {"default": 1.0})
        assert (end.kind, end.trial_job_id, end.success) == ("end", "t0", False)

    play(tmp_path, scenario, assess=True)


@pytest.mark.parametrize(
    ("settings", "code", "sentence"),
    [
        ({"stop_on_same_error": 2}, 1, "2 trials in a row failed with the same error: exit code 1"),
        ({"max_failed": 2}, 1, "2 trials have failed"),
    ],
)
def test_too_many_failures_stop_the_experiment_and_say_so(
    tmp_path: Path, settings: dict[str, int], code: int, sentence: str
) -> None:
    async def scenario(running: Bench) -> None:
        for name in ("nni-e-t0-0", "nni-e-t1-0"):
            await running.until(lambda name=name: name in running.fake.jobs)
            await running.run_job(name, code=code)
        await running.until(lambda: running.engine.rules.state is ExperimentState.ERROR)
        assert sentence in running.engine.rules.reason

    play(tmp_path, scenario, **settings)


def test_a_trial_that_finds_no_room_does_not_hold_up_the_next_one(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: "nni-e-t1-0" in running.fake.jobs)
        assert waiting_reasons(running)[0] == "no machine with the label `rare` is free"

    class Choosy(fakes.FakeService):
        async def submit(self, job: Any) -> Any:
            if job.trial == "t0":
                raise NoCapacity("no machine with the label `rare` is free")
            return await super().submit(job)

    play(tmp_path, scenario, service=Choosy)


def test_results_are_imported_once(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        for expected in (2, 1):
            found = [({"x": 1, "y": 2}, 0.5), ({"x": expected}, float("nan"))]
            assert await running.manager.import_data(found) == expected
        assert await running.manager.import_data([({"y": 2, "x": 1}, 0.5), ({"x": 1}, float("nan"))]) == 0

    play(tmp_path, scenario)


def test_a_search_space_that_the_tuner_refuses_is_not_taken(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        space = {"x": {"_type": "uniform", "_value": [0, 1]}}
        await running.manager.update({"search_space": space})
        for wrong, error in (({**space, "layer": space["x"]}, TunerError), ({"x": 1}, SpaceError)):
            with pytest.raises(error):
                await running.manager.update({"search_space": wrong, "max_trials": 9})
        assert (await running.manager.profile()).space == space
        assert running.engine.rules.settings.max_trials == 4
        assert [call.kind for call in running.tuner.calls] == ["space"]

    play(tmp_path, scenario)


def test_failures_with_a_success_between_them_are_not_in_a_row(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        for number, code in enumerate((1, 0, 1, 0)):
            name = f"nni-e-t{number}-0"
            await running.until(lambda name=name: name in running.fake.jobs)
            await running.run_job(name, code=code)
        await running.until(lambda: running.engine.rules.state is ExperimentState.DONE)

    play(tmp_path, scenario, stop_on_same_error=2, concurrency=1)


def test_a_stop_while_the_last_reports_are_read_does_not_wait_for_them(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: len(running.fake.jobs) == 2)
        for job in running.fake.jobs.values():
            job.events = [Started(1.0), Reported(0, MetricKind.FINAL, 0, 7.0, 2.0)]
        await running.engine.do(s.Stop(running.engine.now()))
        await running.until(lambda: running.ended.done(), timeout_s=60.0)

    play(tmp_path, scenario)


def test_after_the_end_nothing_is_acknowledged(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: len(running.fake.jobs) == 2)
        await running.engine.do(s.Stop(running.engine.now()))
        await running.until(lambda: running.engine.rules.state is ExperimentState.STOPPED)
        await running.until(lambda: running.ended.done(), timeout_s=60.0)
        with pytest.raises(ServiceError, match="has stopped"):
            await running.engine.take("t0", 0, [Reported(0, MetricKind.FINAL, 0, 9.0, 1.0)])

    play(tmp_path, scenario)


def test_reports_in_a_platforms_log_are_followed_while_the_job_runs(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: "nni-e-t0-0" in running.fake.jobs)
        job = running.fake.jobs["nni-e-t0-0"]
        job.events = [Started(1.0), Reported(0, MetricKind.PERIODICAL, 0, 7.0, 2.0)]
        job.start()
        await running.until(lambda: running.engine.rules.live["t0"].last_intermediate == 7.0)

    play(tmp_path, scenario, follow={"fake"})


def test_the_platforms_word_on_an_attempt_that_its_keeper_ended_meanwhile_harms_nobody(tmp_path: Path) -> None:
    late: list[Bench] = []

    class Slow(fakes.FakeService):
        async def reports(self, handle: Any) -> Any:
            if handle["job"] == "nni-e-t0-0":
                await late[0].engine.take("t0", 0, [Exited(1.0, 75)])
                await late[0].until(lambda: late[0].engine.rules.live["t0"].trial.attempt == 1)
            return ()

    async def scenario(running: Bench) -> None:
        late.append(running)
        await running.until(lambda: "nni-e-t0-0" in running.fake.jobs)
        running.fake.jobs["nni-e-t0-0"].finish(75)
        await running.until(lambda: "nni-e-t0-1" in running.fake.jobs)
        await running.run_all(4)

    play(tmp_path, scenario, service=Slow, retry_exit_codes=frozenset({75}), retries_failed=1)


@pytest.mark.parametrize("gap", [Reported(5, MetricKind.PERIODICAL, 0, 7.0, 2.0), Output("stdout", 99, b"late")])
def test_reports_of_a_platform_that_lack_some_harm_nobody(
    tmp_path: Path, gap: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: "nni-e-t0-0" in running.fake.jobs)
        running.fake.jobs["nni-e-t0-0"].events = [gap]
        running.fake.jobs["nni-e-t0-0"].finish()
        await running.run_all(4)

    play(tmp_path, scenario)


class ElasticService(fakes.FakeService):
    """Jobs may have up to four workers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.workers: dict[str, int] = {}
        self.hangs = False

    async def scale(self, handle: Any, workers: int) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if workers > 4:
            raise Conflict("5 workers are more than maxReplicas 4")
        self.workers[handle["job"]] = workers


def test_an_elastic_trial_is_scaled_by_its_service_and_refusals_are_told(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        await running.until(lambda: running.engine.submitted())
        await running.manager.scale_trial("t0", 3)
        assert running.fake.workers == {"nni-e-t0-0": 3}  # type: ignore[attr-defined]
        with pytest.raises(Conflict, match="more than maxReplicas 4"):
            await running.manager.scale_trial("t0", 5)
        with pytest.raises(NotFound):
            await running.manager.scale_trial("nope", 3)
        await running.run_job("nni-e-t0-0")
        with pytest.raises(Conflict, match="has ended"):
            await running.manager.scale_trial("t0", 2)

    play(tmp_path, scenario, service=ElasticService, concurrency=1)


def test_a_trial_that_is_on_no_platform_yet_cannot_be_scaled(tmp_path: Path) -> None:
    async def scenario(running: Bench) -> None:
        running.fake.refuse_with = NoCapacity("full")
        await running.until(lambda: waiting_reasons(running) == ["full"] * 2)
        with pytest.raises(Conflict, match="not on its platform yet"):
            await running.manager.scale_trial("t0", 3)

    play(tmp_path, scenario, service=ElasticService)


def test_a_service_that_does_not_scale_in_time_is_told_of_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_caller, "ASKED_TIMEOUT_S", 0.1)

    async def scenario(running: Bench) -> None:
        await running.until(lambda: running.engine.submitted())
        running.fake.hangs = True  # type: ignore[attr-defined]
        with pytest.raises(ServiceError, match="did not get to it"):
            await running.manager.scale_trial("t0", 3)
        running.fake.hangs = False  # type: ignore[attr-defined]
        monkeypatch.setattr(service_caller, "ASKED_TIMEOUT_S", 5.0)
        await running.manager.scale_trial("t0", 3)

    play(tmp_path, scenario, service=ElasticService)


def test_who_asks_for_a_stop_while_the_manager_is_ending_is_told_that_it_stops(tmp_path: Path) -> None:
    async def scenario(b: Bench) -> None:
        await b.manager.stop()
        await b.ended
        await b.manager.stop()

    play(tmp_path, scenario, max_trials=1)


class ReadService(fakes.FakeService):
    """Counts how often reports are read."""

    read = 0

    async def reports(self, handle: Any) -> Any:
        self.read += 1
        return await super().reports(handle)


@pytest.mark.parametrize(("patience_s", "read"), [(600.0, False), (0.0, True)])
def test_reports_are_left_to_a_keeper_as_long_as_it_delivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience_s: float, read: bool
) -> None:
    monkeypatch.setattr("nnilite._engine.reports._DELIVERING_S", patience_s)

    async def scenario(running: Bench) -> None:
        await running.until(lambda: running.fake.jobs)
        name = next(iter(running.fake.jobs))
        first = [Started(1.0), Reported(0, MetricKind.PERIODICAL, 0, 0.5, 1.5)]
        await running.engine.take(name.split("-")[2], 0, first)
        running.fake.jobs[name].finish()
        polled = running.fake.calls.count("poll")
        assert isinstance(running.service, ReadService)
        await running.until(lambda: running.service.read or running.fake.calls.count("poll") > polled + 2)
        assert bool(running.service.read) is read

    play(tmp_path, scenario, service=ReadService, max_trials=1)
