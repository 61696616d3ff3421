"""The one way in for events: what a keeper was told is stored, is stored, however slow or full the disk is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, StartBench, open_bench

from nnilite._engine import messages, report_reader
from nnilite._engine.dedupe import Fenced
from nnilite._store.async_store import AsyncStore
from nnilite.errors import ServiceError, StoreError
from nnilite.records import Exited, KeeperEvent, MetricKind, Output, Reported, Started, TrialState
from nnilite.service import JobState, JobStatus
from nnilite.services.keeper_events import parse_event
from nnilite.testing import fakes
from waiting import others_turn

pytestmark = pytest.mark.usefixtures("impatient")

JOB = ("t0", 0)
SILENCE_S = 0.5


def metrics(*numbers: int) -> list[KeeperEvent]:
    return [Reported(number, MetricKind.PERIODICAL, number, number, 1.0) for number in numbers]


class SlowDisk(AsyncStore):
    """Writes output when it is let; may fail instead."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.free = asyncio.Event()
        self.writing = 0
        self.error: OSError | None = None

    async def append_output(self, key: Any, chunks: Sequence[Output], *, sync: bool) -> None:
        self.writing += 1
        await self.free.wait()
        await super().append_output(key, chunks, sync=sync)

    def _write_output(self, *arguments: Any) -> None:
        if self.error is not None:
            raise self.error
        super()._write_output(*arguments)


def disk(bench: Bench) -> SlowDisk:
    assert isinstance(bench.store, SlowDisk)
    return bench.store


async def stored(bench: Bench, trial: str = "t0", attempt: int = 0) -> int:
    known = await bench.store.find_attempt((trial, attempt))
    assert known is not None
    return known[2].metrics


async def committed(bench: Bench) -> None:
    """Until all that the rules have seen so far is in the store."""
    await bench.engine.do(messages.Tick(bench.engine.now(), 0.0))


async def test_a_batch_whose_output_cannot_be_written_is_not_taken_and_is_taken_when_it_comes_again(
    start_bench: StartBench, tmp_path: Path
) -> None:
    bench = await start_bench(store=SlowDisk)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    disk(bench).free.set()
    disk(bench).error = OSError(28, "No space left on device")
    batch = [*metrics(0, 1), Output("stdout", 0, b"hello")]
    with pytest.raises(StoreError, match="No space left on device"):
        await bench.engine.commit_events(*JOB, batch)
    assert "No space left" in bench.engine.trouble
    assert await stored(bench) == 0
    disk(bench).error = None
    assert (await bench.engine.commit_events(*JOB, batch)).metrics == 2
    assert (await stored(bench), bench.engine.trouble) == (2, "")
    assert (tmp_path / "trials/t0/0/trial.stdout").read_bytes() == b"hello"


async def test_a_trial_that_sends_output_without_end_fills_no_disk(start_bench: StartBench, tmp_path: Path) -> None:
    bench = await start_bench(output_cap_bytes=1_000_000)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    piece = b"x" * 1_000_000
    for number in range(10):
        taken = await bench.engine.commit_events(*JOB, [Output("stdout", number * len(piece), piece)])
    await bench.engine.commit_events(*JOB, [Output("stderr", 2**53 - 10, b"far")], True)
    assert taken.output["stdout"] == 10_000_000
    assert (tmp_path / "trials/t0/0/trial.stdout").stat().st_size < 3_100_000
    assert not (tmp_path / "trials/t0/0/trial.stderr").exists()


@pytest.mark.parametrize("trouble", ["refused", "held up"])
async def test_an_attempt_whose_reports_wait_for_the_disk_of_the_manager_is_not_silent(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    # On a busy machine the time from one tick to the next may be longer than this silence.
    monkeypatch.setattr("nnilite._engine.engine._LONGEST_TICK_S", SILENCE_S / 4)

    def service(*arguments: Any) -> fakes.LyingService:
        made = fakes.LyingService(*arguments)
        made.lie = "garbage"  # the platform says nothing of any job
        return made

    bench = await start_bench(store=SlowDisk, service=service, silence_s=SILENCE_S)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    batch = [*metrics(0, 1), Output("stdout", 0, b"hello")]
    until = bench.engine.now() + 4 * SILENCE_S
    if trouble == "refused":
        disk(bench).free.set()
        disk(bench).error = OSError(24, "Too many open files")
        while bench.engine.now() < until:
            with pytest.raises(StoreError):
                await bench.engine.commit_events(*JOB, batch)
        disk(bench).error = None
        answer = await bench.engine.commit_events(*JOB, batch)
    else:
        taking = asyncio.create_task(bench.engine.commit_events(*JOB, batch))
        await bench.until(lambda: bench.engine.now() > until)
        disk(bench).free.set()
        answer = await taking
    assert (answer.metrics, await stored(bench)) == (2, 2)


async def test_a_trial_that_is_gone_leaves_no_trouble_behind(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._engine.gate._TROUBLE_HOLDS_S", 0.2)
    bench = await start_bench(store=SlowDisk)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    disk(bench).free.set()
    disk(bench).error = OSError(28, "No space left on device")
    with pytest.raises(StoreError):
        await bench.engine.commit_events(*JOB, [Output("stdout", 0, b"hello")])
    assert bench.engine.trouble
    disk(bench).error = None
    await bench.until(lambda: not bench.engine.trouble)


async def test_the_rest_and_the_end_do_not_overtake_a_batch_that_waits_for_the_disk(start_bench: StartBench) -> None:
    bench = await start_bench(store=SlowDisk)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    first = asyncio.create_task(bench.engine.commit_events(*JOB, [*metrics(0, 1), Output("stdout", 0, b"x")]))
    await bench.until(lambda: disk(bench).writing)
    bench.fake.jobs["nni-e-t0-0"].events = [Started(1.0), *metrics(0, 1, 2), Exited(3.0, 0)]
    bench.fake.jobs["nni-e-t0-0"].finish()
    bench.wake.ring()
    disk(bench).free.set()
    assert (await first).metrics in (2, 3)
    await bench.until(lambda: "t0" not in bench.engine.rules.live)
    await committed(bench)
    assert await stored(bench) == 3


async def test_events_that_come_when_their_trial_has_just_ended_are_kept_all_the_same(bench: Bench) -> None:
    await bench.until(lambda: bench.engine.submitted())
    over = messages.Polled(*JOB, JobStatus(JobState.FAILED, "gone", 1), bench.engine.now())
    bench.engine.put(over)  # is looked at first, in the same round
    assert (await bench.engine.commit_events(*JOB, metrics(0, 1))).metrics == 2
    assert await stored(bench) == 2


async def test_a_batch_of_an_attempt_that_was_just_replaced_is_not_acknowledged(bench: Bench) -> None:
    await bench.until(lambda: bench.engine.submitted())
    bench.engine.put(messages.Polled(*JOB, JobStatus(JobState.LOST, "gone"), bench.engine.now()))
    with pytest.raises(Fenced):
        await bench.engine.commit_events(*JOB, metrics(0, 1))


async def test_a_caller_that_gives_up_while_its_batch_is_committed_doubles_nothing(bench: Bench) -> None:
    await bench.until(lambda: bench.engine.submitted())
    impatient_one = asyncio.create_task(bench.engine.commit_events(*JOB, metrics(0, 1, 2)))
    await others_turn()
    impatient_one.cancel()
    assert (await bench.engine.commit_events(*JOB, metrics(0, 1, 2, 3))).metrics == 4
    assert bench.engine.rules.live["t0"].reported == 4
    assert await stored(bench) == 4


async def test_of_a_new_attempt_the_store_is_not_asked_and_of_an_earlier_managers_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []
    find_attempt = AsyncStore.find_attempt

    async def noted(store: AsyncStore, key: tuple[str, int]) -> Any:
        asked.append(key)
        return await find_attempt(store, key)

    async with open_bench(tmp_path) as first:
        await first.until(lambda: first.engine.submitted())
        monkeypatch.setattr(AsyncStore, "find_attempt", noted)
        assert ((await first.engine.commit_events(*JOB, metrics(0))).metrics, asked) == (1, [])
    async with open_bench(tmp_path) as second:
        assert ((await second.engine.commit_events(*JOB, metrics(0, 1))).metrics, asked) == (2, [JOB])


async def test_batches_that_are_sent_again_and_again_do_not_all_wait_in_memory(start_bench: StartBench) -> None:
    bench = await start_bench(store=SlowDisk)
    await bench.until(lambda: bench.engine.submitted())
    batch = [Output("stdout", 0, b"x")]
    waiting = [asyncio.create_task(bench.engine.commit_events(*JOB, batch)) for _ in range(2)]
    await bench.until(lambda: disk(bench).writing)
    with pytest.raises(ServiceError, match="still wait for the disk"):
        await bench.engine.commit_events(*JOB, batch)
    disk(bench).free.set()
    assert [answer.output for answer in await asyncio.gather(*waiting)] == [{"stdout": 1}] * 2


async def test_the_end_of_a_job_waits_until_what_it_reported_can_be_stored(start_bench: StartBench) -> None:
    bench = await start_bench(store=SlowDisk)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    disk(bench).error = OSError(5, "Input/output error")
    disk(bench).free.set()
    job = bench.fake.jobs["nni-e-t0-0"]
    job.events = [Started(1.0), *metrics(0, 1), Output("stdout", 0, b"x"), Exited(3.0, 0)]
    job.finish()
    await bench.until(lambda: bench.engine.trouble)
    await bench.until(lambda: disk(bench).writing > 2)
    assert "t0" in bench.engine.rules.live
    disk(bench).error = None
    await bench.until(lambda: "t0" not in bench.engine.rules.live)
    await committed(bench)
    assert await stored(bench) == 2


async def test_the_end_of_a_job_waits_until_its_reports_can_be_read(start_bench: StartBench) -> None:
    class Away(fakes.FakeService):
        troubles = 3

        async def reports(self, handle: Any) -> Any:
            self.troubles -= 1
            if self.troubles >= 0:
                raise ServiceError("the log cannot be read now")
            return await super().reports(handle)

    bench = await start_bench(service=Away)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    bench.fake.jobs["nni-e-t0-0"].events = [Started(1.0), *metrics(0, 1), Exited(3.0, 0)]
    bench.fake.jobs["nni-e-t0-0"].finish()
    await bench.until(lambda: "t0" not in bench.engine.rules.live)
    assert await stored(bench) == 2


ODD = ["1" + "0" * 400, "[" * 400 + "]" * 400, '{"\\ud800": 1}', "1e999", "[", '{"default": 1' + "0" * 400 + "}"]


def from_log(number: int, text: str, kind: str = "FINAL") -> KeeperEvent:
    event = {"type": "metric", "index": number, "kind": kind, "sequence": 0, "value": text, "time": 1.0}
    return parse_event(event)


@pytest.mark.parametrize("text", ODD)
async def test_no_value_ends_the_manager_and_the_next_one_goes_on(tmp_path: Path, text: str) -> None:
    async with open_bench(tmp_path, assess=True) as first:
        await first.until(lambda: "nni-e-t0-0" in first.fake.jobs)
        job = first.fake.jobs["nni-e-t0-0"]
        job.events = [Started(1.0), from_log(0, text, "PERIODICAL"), from_log(1, text), Exited(3.0, 0)]
        job.finish()
        await first.until(lambda: first.engine.rules.counts[TrialState.SUCCEEDED])
        await committed(first)
        assert await stored(first) == 2
    async with open_bench(tmp_path, assess=True) as second:
        await second.until(lambda: second.engine.submitted())


async def test_a_value_that_cannot_be_kept_is_told_at_its_trial_while_it_runs_and_after_its_end(bench: Bench) -> None:
    await bench.until(lambda: bench.engine.submitted())
    await bench.engine.commit_events(*JOB, [Started(1.0), from_log(0, "1" * 400, "PERIODICAL")])
    why = "metric 0 was not kept: it contains a whole number of more than 300 digits"
    assert bench.engine.rules.live["t0"].trial.reason == why
    await bench.engine.commit_events(*JOB, [from_log(1, "2" * 400, "PERIODICAL"), from_log(2, "0.5"), Exited(2.0, 0)])
    trial, attempts = await bench.manager.results.trial("t0")
    assert (trial.state, trial.value) == (TrialState.SUCCEEDED, 0.5)
    assert trial.reason == attempts[0].message == why + ", and others after it"


async def test_a_hole_in_the_numbers_is_asked_for_again_and_told_at_the_trial(start_bench: StartBench) -> None:
    asked: list[str] = []

    class Rotated(fakes.FakeService):
        async def reports(self, handle: Any) -> Any:
            asked.append(handle["job"])
            return await super().reports(handle)

    bench = await start_bench(service=Rotated)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    job = bench.fake.jobs["nni-e-t0-0"]
    job.events = [*metrics(3), from_log(4, "0.5"), Exited(3.0, 0)]
    job.finish()
    await bench.until(lambda: "t0" not in bench.engine.rules.live)
    await committed(bench)
    trial, _ = await bench.manager.results.trial("t0")
    assert (trial.state, trial.value) == (TrialState.SUCCEEDED, 0.5)
    assert trial.reason == "metrics 0 to 2 did not arrive"
    assert asked[:2] == ["nni-e-t0-0"] * 2


async def test_a_hole_that_a_recap_fills_is_told_to_nobody(start_bench: StartBench) -> None:
    bench = await start_bench(follow={"fake"})
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    job = bench.fake.jobs["nni-e-t0-0"]
    job.events = [Started(1.0), *metrics(2)]
    job.start()
    await bench.until(lambda: bench.engine.rules.live["t0"].trial.state is TrialState.RUNNING)
    final = from_log(3, "0.5")
    job.events = [*metrics(2), Started(1.0), *metrics(0, 1, 2), final, final, Exited(3.0, 0, metrics=4)]
    job.finish()
    await bench.until(lambda: "t0" not in bench.engine.rules.live)
    await committed(bench)
    trial, _ = await bench.manager.results.trial("t0")
    assert (trial.state, trial.value, trial.reason) == (TrialState.SUCCEEDED, 0.5, "")
    assert await stored(bench) == 4


@pytest.mark.parametrize("trouble", [OSError(28, "No space left on device"), None])
async def test_what_a_service_gives_only_once_is_not_lost_when_it_cannot_be_taken(
    start_bench: StartBench, trouble: OSError | None
) -> None:
    class Once(fakes.FakeService):
        async def reports(self, handle: Any) -> Any:
            job = self.jobs[handle["job"]]
            events, job.events = job.events, []
            return events

    bench = await start_bench(service=Once, store=SlowDisk, follow={"fake"})
    disk(bench).free.set()
    disk(bench).error = trouble
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    job = bench.fake.jobs["nni-e-t0-0"]
    job.start()
    late = [Output("stdout", 0, b"x"), *metrics(2)]
    job.events = late if trouble is None else [Started(1.0), *metrics(0, 1), *late]
    await bench.until(lambda: not job.events)
    job.events = [] if trouble else [Started(1.0), *metrics(0, 1)]
    await bench.until(lambda: bench.engine.trouble or not job.events)
    disk(bench).error = None
    await bench.until(lambda: bench.engine.rules.live["t0"].reported == 3)


def test_readings_that_overlap_do_not_pile_up() -> None:
    reading = [Exited(3.0, 0), *metrics(1, 0), Output("stdout", 0, b"x"), Output("stderr", 0, b"y"), Started(1.0)]
    once = report_reader._in_order(reading)
    assert report_reader._in_order([*once, *reading, *reading]) == once
    assert (len(once), once[0], once[-1]) == (6, Started(1.0), Exited(3.0, 0))


async def test_texts_from_outside_that_cannot_be_encoded_do_not_end_the_manager(bench: Bench) -> None:
    await bench.until(lambda: bench.engine.submitted())
    seen = messages.Polled(*JOB, JobStatus(JobState.RUNNING, "", host="h\ud800", url="u\ud800"), bench.engine.now())
    await bench.engine.do(seen)
    await bench.engine.do(messages.TunerFailed("Traceback: \ud800"))
    assert bench.engine.rules.reason == "Traceback: \ud800"
    assert not bench.ended.done()


IMPOSSIBLE = ({"exit_code": 10**30}, {"ended": 10**400}, {"started": "x"}, {"host": 5}, {"reason": None}, {"url": []})


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.FAILED, JobState.LOST])
@pytest.mark.parametrize("values", IMPOSSIBLE, ids=lambda values: str(*values))
async def test_values_of_a_status_that_cannot_be_stored_are_left_out(
    start_bench: StartBench, values: dict[str, Any], state: JobState
) -> None:
    class Odd(fakes.FakeService):
        async def poll(self, handles: Any) -> list[JobStatus]:
            return [JobStatus(state, **values) for _ in handles]

    bench = await start_bench(service=Odd)
    seen = TrialState.RUNNING if state is JobState.RUNNING else TrialState.FAILED
    await bench.until(lambda: bench.engine.rules.counts[seen])
    await bench.engine.do(messages.TunerFailed("over"))
    assert not bench.ended.done()


@pytest.mark.parametrize("handle", [None, "x", {"data": b"x"}, {"deep": 10**400}])
async def test_a_handle_that_is_no_json_object_is_refused(start_bench: StartBench, handle: Any) -> None:
    class Odd(fakes.FakeService):
        async def submit(self, job: Any) -> Any:
            await super().submit(job)
            return handle

    bench = await start_bench(service=Odd)
    await bench.until(lambda: any("instead of a handle" in t.reason for t in bench.live))
    assert not bench.ended.done()


@pytest.mark.parametrize("events", [None, "x", [1], [{"type": "exit"}]])
async def test_reports_that_are_no_events_are_refused(
    start_bench: StartBench, events: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(report_reader, "UNREAD_PATIENCE_S", 0.0)  # that of an ended job is asked for once

    class Odd(fakes.FakeService):
        async def reports(self, handle: Any) -> Any:
            return events

    bench = await start_bench(service=Odd)
    await bench.until(lambda: "nni-e-t0-0" in bench.fake.jobs)
    bench.fake.jobs["nni-e-t0-0"].finish(1)
    await bench.until(lambda: bench.engine.rules.counts[TrialState.FAILED])
    assert "instead of a list of events" in caplog.text
