"""In which order the training service is called."""

from __future__ import annotations

from typing import Any

import pytest
from engine_bench import Bench, StartBench

from nnilite._engine import messages as s
from nnilite._engine.call_queue import CallQueue
from nnilite.errors import NoCapacity
from nnilite.records import Attempt, Exited, Started, Trial
from nnilite.testing import fakes
from waiting import eventually_async, others_turn

pytestmark = pytest.mark.usefixtures("impatient")


def submit(number: int) -> s.Submit:
    return s.Submit(Trial(f"t{number}", number, {}), Attempt(f"t{number}", 0))


def cancel(number: int) -> s.Cancel:
    return s.Cancel(Attempt(f"t{number}", 0, handle={}))


def remove(number: int) -> s.Remove:
    return s.Remove(Attempt(f"t{number}", 0, handle={}))


def queue(*calls: Any) -> CallQueue:
    made = CallQueue()
    for call in calls:
        made.put(call, now=10.0)
    return made


def test_removals_come_after_all_other_calls_and_not_before_their_time() -> None:
    calls = queue(remove(0), cancel(1))
    assert calls.other(10.0) == cancel(1)
    assert calls.other(10.0) is None
    assert calls.other(calls.next_removal) == remove(0)
    assert not calls


def test_submissions_come_together_as_far_as_no_other_call_is_between_them() -> None:
    calls = queue(submit(0), submit(1), submit(2), cancel(0), submit(3))
    assert calls.submits(2, 10.0) == [submit(0), submit(1)]
    assert calls.submits(2, 10.0) == [submit(2)]
    assert calls.submits(2, 10.0) == []
    assert calls.other(10.0) == cancel(0)
    assert calls.submits(2, 10.0) == [submit(3)]


def test_a_removal_can_be_had_before_its_time_by_who_needs_the_room() -> None:
    calls = queue(submit(0), remove(1))
    assert (calls.removal(10.0), calls.removal(), calls.has_removals) == (None, remove(1), False)


def test_a_removal_that_has_waited_for_long_comes_next_whatever_else_waits() -> None:
    calls = queue(remove(0), submit(1), cancel(2))
    later = calls.next_removal + 60
    assert calls.submits(5, later) == []
    assert calls.other(later) == remove(0)
    assert calls.submits(5, later) == [submit(1)]


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
    await bench.engine.take("t0", 0, [Started(1.0), Exited(2.0, 0)])
    await eventually_async(lambda: "submit nni-e-t1-0" in bench.fake.calls, 10.0)
    at = bench.fake.calls.index("full nni-e-t1-0")
    assert bench.fake.calls[at : at + 3] == ["full nni-e-t1-0", "remove nni-e-t0-0", "submit nni-e-t1-0"]
