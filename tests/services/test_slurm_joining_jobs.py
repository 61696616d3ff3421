"""Jobs that join elastic trials on Slurm: when they are submitted, how many, and when they are taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from nnilite.errors import Conflict, ServiceError
from nnilite.records import NodeCounts
from nnilite.service import Handle, JobState, JobStatus
from nnilite.services.cluster.queued_job import QueuedJob, QueuePhase
from nnilite_slurm import _joining_jobs
from nnilite_slurm._joining_jobs import JoiningJobs, lost_first_node, name_joining_jobs

HANDLE: Handle = {"job": "nni-e-t-0", "folder": "e/trials/t/0", "id": "1", "gpus": 2}
MAIN = QueuedJob("1", "nni-e-t-0", QueuePhase.RUNNING, host="n1", started=0.0, nodes=("n1", "n2"))
RUNNING, WAITING = JobStatus(JobState.RUNNING), JobStatus(JobState.WAITING, "Priority")


class Slurm:
    """Slurm's queue, with one trial of two nodes, which may have four; and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now)
        monkeypatch.setattr(_joining_jobs, "time", clock)
        self.jobs = {"1": MAIN}
        self.excluded: list[Sequence[str]] = []
        self.ended: list[tuple[str, bool]] = []
        self.asked: list[str] = []
        self.left: list[Sequence[str]] = []
        self.refuses = False
        api: Any = self
        self.joining = JoiningJobs(api, NodeCounts(2, 4), lambda name, gpus: f"{name} with {gpus}")

    async def join(self, folder: str, script: str, taken: Sequence[str]) -> str:
        if self.refuses:
            raise ServiceError("sbatch: Slurm is away")
        assert (folder, script) == ("e/trials/t/0", "nni-e-t-0+ with 2")
        self.excluded.append(taken)
        number = str(100 + len(self.excluded))
        self.jobs[number] = QueuedJob(number, "nni-e-t-0+", QueuePhase.WAITING)
        return number

    async def end_joining_jobs(self, name: str, only_waiting: bool = False) -> None:
        self.ended.append((name, only_waiting))

    async def ask_to_end(self, job: str) -> None:
        self.asked.append(job)

    async def release(self, job: str, nodes: Sequence[str]) -> None:
        self.left.append(nodes)

    def run(self, number: str, node: str) -> None:
        """Let a joiner begin."""
        found = replace(self.jobs[number], phase=QueuePhase.RUNNING, host=node, nodes=(node,), started=self.now)
        self.jobs[number] = found

    async def poll(self, *more: JobStatus) -> None:
        self.joining.look_after([(HANDLE, self.jobs["1"])], [RUNNING, *more], self.jobs)
        await asyncio.gather(*self.joining._tasks.values())

    async def take_node(self) -> None:
        await self.joining.take_node(HANDLE, self.jobs["1"], self.jobs)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(monkeypatch)


async def test_one_joiner_waits_at_a_time_for_another_node_and_no_more_come_than_may(
    slurm: Slurm,
) -> None:
    for _ in range(3):
        await slurm.poll()
        slurm.now += 60
    assert slurm.excluded == [["n1", "n2"]]
    slurm.run("101", "n3")
    await slurm.poll()
    slurm.run("102", "n4")
    slurm.now += 60
    await slurm.poll()
    assert slurm.excluded == [["n1", "n2"], ["n1", "n2", "n3"]]


async def test_a_node_that_slurm_has_taken_out_is_replaced(slurm: Slurm) -> None:
    slurm.joining = JoiningJobs(slurm, NodeCounts(1, 2), lambda name, gpus: "nni-e-t-0+ with 2")  # type: ignore[arg-type]
    await slurm.poll()
    assert slurm.excluded == []
    slurm.jobs["1"] = replace(MAIN, nodes=("n1",))
    await slurm.poll()
    assert slurm.excluded == [["n1"]]


async def test_trials_that_wait_come_first(slurm: Slurm) -> None:
    await slurm.poll(WAITING)
    assert slurm.excluded == []
    await slurm.poll()
    await slurm.poll(WAITING)
    assert slurm.ended == [("nni-e-t-0+", True)]


async def test_room_in_the_queue_is_left_to_a_trial_that_slurm_has_not_accepted(slurm: Slurm) -> None:
    slurm.joining.give_way()
    await slurm.poll()
    assert slurm.excluded == []
    slurm.now += 61
    await slurm.poll()
    slurm.joining.give_way()
    await slurm.poll()
    assert (len(slurm.excluded), slurm.ended) == (1, [("nni-e-t-0+", True)])


async def test_joining_jobs_that_end_at_once_come_ever_more_rarely_and_one_that_stays_makes_up_for_them(
    slurm: Slurm,
) -> None:
    moments = []
    for _ in range(400):
        before = len(slurm.excluded)
        await slurm.poll()
        if len(slurm.excluded) > before:
            moments.append(slurm.now)
            del slurm.jobs[str(100 + len(slurm.excluded))]
        slurm.now += 5
    pauses = [after - before for before, after in pairwise(moments)]
    assert pauses[:6] == [10, 20, 40, 80, 160, 320]
    slurm.now += 1800
    await slurm.poll()
    last = str(100 + len(slurm.excluded))
    slurm.run(last, "n3")
    slurm.now += 1800
    await slurm.poll()
    del slurm.jobs[str(100 + len(slurm.excluded))]
    slurm.now += 20
    count = len(slurm.excluded)
    await slurm.poll()
    assert len(slurm.excluded) == count + 1


async def test_a_slurm_that_refuses_is_asked_again_later(slurm: Slurm, caplog: pytest.LogCaptureFixture) -> None:
    slurm.refuses = True
    for _ in range(100):
        await slurm.poll()
        slurm.now += 5
    assert caplog.text.count("cannot grow now") == 6
    assert "nni-e-t-0 cannot grow now: sbatch: Slurm is away" in caplog.text
    slurm.refuses = False
    await slurm.poll()
    assert slurm.excluded == []
    slurm.now += 640
    await slurm.poll()
    assert len(slurm.excluded) == 1


async def test_a_drill_takes_any_node_but_the_first_once_and_none_that_the_trial_needs(slurm: Slurm) -> None:
    with pytest.raises(Conflict, match="no node to spare"):
        await slurm.take_node()
    await slurm.poll()
    slurm.run("101", "n3")
    await slurm.take_node()
    assert (slurm.asked, slurm.left) in ((["101"], []), ([], [["n1"]]))
    with pytest.raises(Conflict, match="no node to spare"):
        await slurm.take_node()
    await slurm.poll()
    assert len(slurm.excluded) == 1  # not at once


async def test_nothing_is_known_of_a_trial_whose_joining_jobs_were_ended(slurm: Slurm) -> None:
    await slurm.poll()
    await slurm.joining.end("nni-e-t-0")
    assert slurm.ended == [("nni-e-t-0+", False)]
    assert not slurm.joining._growths


def test_a_job_without_its_first_node_is_lost() -> None:
    assert lost_first_node(MAIN) == ""
    assert lost_first_node(replace(MAIN, nodes=("n2",))) == "n1"
    assert lost_first_node(replace(MAIN, nodes=())) == ""
    assert lost_first_node(replace(MAIN, nodes=("n2",), phase=QueuePhase.COMPLETED)) == ""
    assert lost_first_node(None) == ""
    assert name_joining_jobs("a") == "a+"
