"""In which order the training service is called."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from engine_bench import Bench, StartBench

from nnilite._engine import messages, slow_calls
from nnilite._engine.call_queue import CallQueue
from nnilite.errors import NoCapacity
from nnilite.records import Attempt, Exited, Started, Trial
from nnilite.testing import fakes
from waiting import eventually_async, others_turn

pytestmark = pytest.mark.usefixtures("impatient")


def submit(number: int) -> messages.Submit:
    return messages.Submit(Trial(f"t{number}", number, {}), Attempt(f"t{number}", 0))


def cancel(number: int) -> messages.Cancel:
    return messages.Cancel(Attempt(f"t{number}", 0, handle={}))


def remove(number: int) -> messages.Remove:
    return messages.Remove(Attempt(f"t{number}", 0, handle={}))


def queue(*calls: Any) -> CallQueue:
    made = CallQueue()
    for call in calls:
        made.put(call, now=10.0)
    return made


def test_removals_come_after_all_other_calls_and_not_before_their_time() -> None:
    calls = queue(remove(0), submit(2), cancel(1))
    assert [calls.other(10.0), calls.other(10.0)] == [cancel(1), None]
    assert calls.submits(9) == [submit(2)]
    assert calls.other(10.0) is None
    assert calls.other(calls.next_other) == remove(0)
    assert not calls


def test_as_many_submissions_come_together_as_there_is_room_for() -> None:
    calls = queue(submit(0), submit(1), cancel(0), submit(2))
    assert [calls.submits(most) for most in (0, 2, 2)] == [[], [submit(0), submit(1)], [submit(2)]]


def test_a_removal_can_be_had_before_its_time_by_who_needs_the_room() -> None:
    calls = queue(submit(0), remove(1))
    assert (calls.other(10.0), calls.removal(), calls.has_removals) == (None, remove(1), False)


def test_a_removal_that_has_waited_for_long_comes_before_submissions() -> None:
    calls = queue(remove(0), submit(1), cancel(2))
    assert [calls.other(70.0) for _ in range(3)] == [cancel(2), remove(0), None]


def test_removals_are_made_in_groups_until_another_call_comes() -> None:
    calls = queue(remove(0), remove(1), remove(2))
    assert calls.other(10.1) is None
    assert [calls.other(11.0), calls.next_of_group(11.0)] == [remove(0), remove(1)]
    calls.put(submit(3), now=11.0)
    assert calls.next_of_group(11.0) is None


def test_a_removal_whose_moment_is_not_over_is_in_no_group() -> None:
    calls = queue(remove(0))
    calls.put(remove(1), now=11.0)
    assert [calls.other(11.0), calls.next_of_group(11.0), calls.next_of_group(11.1)] == [remove(0), None, remove(1)]


def test_in_a_hurry_removals_wait_for_their_moment_alone() -> None:
    calls = queue(remove(0))
    calls.expedite_removals()
    assert [calls.other(10.0), calls.other(10.1)] == [None, remove(0)]


def test_when_no_submissions_will_come_removals_wait_for_none_but_still_come_after_cancellations() -> None:
    calls = queue(remove(0), cancel(1))
    calls.close(10.0)
    calls.put(remove(2), now=10.0)
    assert [calls.other(10.0) for _ in range(4)] == [cancel(1), remove(0), remove(2), None]


class Meeting(fakes.FakeService):
    """Tells how many submissions were under way at once, at the most."""

    under_way = most = 0

    async def submit(self, job: Any) -> Any:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await others_turn()
        self.under_way -= 1
        return await super().submit(job)


class MeetingOfThree(Meeting):
    submits_at_once = 3


@pytest.mark.parametrize(("service", "most"), [(Meeting, 1), (MeetingOfThree, 3)])
async def test_a_service_gets_as_many_submissions_at_once_as_it_takes(
    start_bench: StartBench, service: Any, most: int
) -> None:
    bench = await start_bench(service=service, concurrency=4, max_trials=12)
    await bench.run_all(12)
    assert isinstance(bench.fake, Meeting)
    assert bench.fake.most == most


async def test_what_is_left_of_an_attempt_is_removed_before_the_next_one_is_submitted(bench: Bench) -> None:
    await bench.until(lambda: bench.engine.submitted())
    bench.fake.jobs["nni-e-t0-0"].lose()
    bench.wake.ring()
    await bench.until(lambda: "submit nni-e-t0-1" in bench.fake.calls)
    calls = bench.fake.calls
    assert calls.index("remove nni-e-t0-0") < calls.index("submit nni-e-t0-1")


async def test_a_job_finds_at_once_the_room_that_only_an_ended_job_still_has(start_bench: StartBench) -> None:
    class OneRoom(fakes.FakeService):
        async def submit(self, job: Any) -> Any:
            if any(not other.removed for name, other in self.jobs.items() if name != job.name):
                self.calls.append(f"full {job.name}")
                raise NoCapacity("one at a time")
            return await super().submit(job)

    bench = await start_bench(service=OneRoom, concurrency=1)
    await bench.until(lambda: bench.engine.submitted())
    await bench.engine.commit_events("t0", 0, [Started(1.0), Exited(2.0, 0)])
    await eventually_async(lambda: "submit nni-e-t1-0" in bench.fake.calls, 10.0)
    at = bench.fake.calls.index("full nni-e-t1-0")
    assert bench.fake.calls[at : at + 3] == ["full nni-e-t1-0", "remove nni-e-t0-0", "submit nni-e-t1-0"]


class Hanging(fakes.FakeService):
    """Its submission of the second trial hangs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.answers = asyncio.Event()

    async def submit(self, job: Any) -> Any:
        if job.trial == "t1":
            self.calls.append("hanging")
            await self.answers.wait()
        return await super().submit(job)


async def test_a_submission_that_hangs_stops_neither_looks_nor_removals(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_calls, "PATIENCE_S", 0.05)
    bench = await start_bench(service=Hanging, concurrency=2, max_trials=2)
    await bench.until(lambda: "hanging" in bench.fake.calls)
    bench.fake.jobs["nni-e-t0-0"].finish()
    await bench.until(lambda: "remove nni-e-t0-0" in bench.fake.calls)
    assert isinstance(bench.fake, Hanging)
    bench.fake.answers.set()
    await bench.until(lambda: "nni-e-t1-0" in bench.fake.jobs)


class HangingPoll(fakes.FakeService):
    """Its polls hang until `answers` is set."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.answers = asyncio.Event()
        self.answers.set()

    async def poll(self, handles: Any) -> Any:
        found = await super().poll(handles)
        await self.answers.wait()
        return found


async def test_a_poll_that_hangs_stops_no_submission_but_what_is_removed_then_waits(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_calls, "PATIENCE_S", 0.05)
    bench = await start_bench(service=HangingPoll, concurrency=1, max_trials=3)
    assert isinstance(bench.fake, HangingPoll)
    await bench.until(lambda: bench.engine.submitted())
    bench.fake.answers.clear()
    polls = bench.fake.calls.count("poll")
    await bench.until(lambda: bench.fake.calls.count("poll") > polls)
    await bench.run_job("nni-e-t0-0")
    await bench.until(lambda: "submit nni-e-t1-0" in bench.fake.calls)
    assert "remove nni-e-t0-0" not in bench.fake.calls
    bench.fake.answers.set()
    await bench.until(lambda: "remove nni-e-t0-0" in bench.fake.calls)


async def test_the_end_of_an_experiment_does_not_wait_for_more_removals(
    start_bench: StartBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._engine.call_queue._GROUP_S", 3600.0)
    bench = await start_bench(max_trials=2)
    await bench.run_all(2)
    await bench.manager.control.stop()
    await asyncio.wait_for(bench.ended, 60.0)
    assert sorted(call for call in bench.fake.calls if "remove" in call) == ["remove nni-e-t0-0", "remove nni-e-t1-0"]
