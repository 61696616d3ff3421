"""The local service where a disk hangs, a spool has no end, or a keeper was stopped: the other jobs do not notice."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from nnilite._keeper import plain_file
from nnilite._keeper.folder_looks import FolderLooks
from nnilite.errors import NoCapacity, ServiceError
from nnilite.foreign_files import open_below
from nnilite.service import JobState
from nnilite.testing import ServiceBench, eventually, fake_context
from nnilite.testing.probes import quoted, runs
from nnilite_local import LocalConfig, LocalService, _endings
from nnilite_local._attempt_folder import AttemptFolder
from nnilite_local._keeper_watch import LocalWatch
from waiting import eventually_async, others_turn

pytestmark = pytest.mark.process


@pytest.fixture
def bench(tmp_path):
    with ServiceBench(tmp_path, lambda context: LocalService("local", LocalConfig(), context)) as bench:
        yield bench
        bench.service._watch._looks.limit_s = 60.0  # nothing hangs any more; a busy machine may be slow


class HangingDisk:
    """All that reads small files below some folders hangs until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folders: list[str] = []
        self.waits = 0
        self.answers = threading.Event()
        for place, real in (
            ("_keeper.plain_file.read", plain_file.read),
            ("_keeper.spool.open_regular", plain_file.open_regular),
            ("services.keeper_folder.open_below", open_below),
        ):
            monkeypatch.setattr(f"nnilite.{place}", self._slow(real))

    def _slow(self, real):
        def wait(path, *more):
            if any(str(path).startswith(folder) for folder in self.folders):
                self.waits += 1
                self.answers.wait(600)
            return real(path, *more)

        return wait


@pytest.fixture
def disk(bench, monkeypatch):
    disk = HangingDisk(monkeypatch)
    yield disk
    disk.answers.set()
    eventually(lambda: not bench.service._watch._looks.hanging())


def running(bench: ServiceBench, command: str = "sleep 60", **more) -> tuple[str, int]:
    """A job that runs, and the process id of its command."""
    mark = f"{time.monotonic_ns()}"
    name = bench.run(f"echo $$ >> {quoted(bench.mark(mark))}; {command}", **more)
    bench.wait(name, JobState.RUNNING)
    eventually(lambda: bench.lines(mark))
    return name, int(bench.lines(mark)[0])


def hangs(bench: ServiceBench, disk: HangingDisk, name: str) -> None:
    disk.folders.append(str(bench.handles[name]["directory"]))


def polled(bench: ServiceBench) -> list[JobState]:
    return [status.state for status in bench.call(bench.service.poll(list(bench.handles.values())))]


def test_a_folder_that_hangs_makes_its_own_job_unknown_and_no_other(bench, disk):
    names = [running(bench)[0] for _ in range(3)]
    hangs(bench, disk, names[1])
    # On a busy machine a folder that is well may not answer in time either, now and then.
    eventually(lambda: polled(bench) == [JobState.RUNNING, JobState.UNKNOWN, JobState.RUNNING])
    assert bench.status(names[1]).reason.endswith("cannot be read now: no answer within 2 s")
    waits = disk.waits
    assert bench.wait(bench.run("exit 3")).exit_code == 3
    assert polled(bench)[1] is JobState.UNKNOWN
    assert disk.waits == waits, "it was looked at again"
    disk.answers.set()
    bench.wait(names[1], JobState.RUNNING)


def test_calls_for_a_job_whose_folder_hangs_are_refused_in_time_and_it_is_ended(bench, disk):
    name, pid = running(bench)
    other, _ = running(bench)
    hangs(bench, disk, name)
    service, handle = bench.service, bench.handles[name]
    for call in (service.reports(handle), service.logs(handle, "stdout", 0, 10), service.remove(handle)):
        with pytest.raises(ServiceError, match="no answer within"):
            bench.call(call)
    bench.call(service.cancel(handle))
    eventually(lambda: not runs(pid))
    bench.wait(other, JobState.RUNNING)


@pytest.mark.parametrize(("limit_s", "hangs"), [(60.0, False), (0.1, True)])
async def test_a_look_that_nobody_waits_for_any_more_makes_its_folder_hang_only_if_it_does(tmp_path, limit_s, hangs):
    """As when a job ends while the service looks at what it takes to end it."""
    looks, answers = FolderLooks(limit_s), threading.Event()
    watch = LocalWatch(looks, None, None, "here")
    look = asyncio.create_task(watch.read(AttemptFolder(tmp_path), "grace", lambda: answers.wait(60)))
    await others_turn()
    look.cancel()
    await asyncio.wait([look])
    if hangs:
        await eventually_async(looks.hanging)
    else:
        assert looks.look(str(tmp_path), "status", lambda: "it runs") == "it runs"
    answers.set()
    await eventually_async(lambda: not looks.hanging())


def test_a_further_attempt_whose_folder_cannot_be_made_holds_up_no_other_job(bench, disk, monkeypatch):
    name, pid = running(bench)
    os.kill(pid, signal.SIGKILL)
    bench.wait(name)
    real = AttemptFolder.create

    def create(folder, spec):
        if folder.path.name == "1":
            disk.answers.wait(600)
        real(folder, spec)

    monkeypatch.setattr(AttemptFolder, "create", create)
    second = bench.job("true")
    second = replace(second, name=name.removesuffix("0") + "1", trial=name.split("-")[2], attempt=1)
    with pytest.raises(ServiceError, match="no answer within 2 s"):
        bench.submit(second)
    assert bench.wait(bench.run("exit 3")).exit_code == 3


def test_no_more_than_some_threads_hang(bench, disk):
    looks = bench.service._watch._looks
    looks.limit_s = 60.0  # a busy machine may be slow: nothing is to hang before the disk does
    names = [running(bench)[0] for _ in range(3)]
    looks._most_hanging, looks.limit_s = 2, 0.1
    for name in names:
        hangs(bench, disk, name)
    before = threading.active_count()
    for _ in range(3):
        assert polled(bench) == [JobState.UNKNOWN] * 3
    # Nine would hang without a limit. Some more wait for work on the event loop.
    assert threading.active_count() - before <= 6
    assert "2 other folders of trials hang" in bench.status(names[2]).reason


@pytest.mark.parametrize("end", ["exit 0", "exit 3"])
def test_a_spool_of_six_terabytes_holds_nothing_up(bench, end):
    spool = "truncate -s 6T .nni/metrics; sleep 0.5"  # no machine reads that before this test gives up
    name = bench.run(
        f'cd "$NNI_OUTPUT_DIR"; echo "final 1" > .nni/metrics; {spool}; echo "final 2" >> .nni/metrics; {end}'
    )
    bench.service._watch._looks.limit_s = 60.0
    received = bench.finish(name)
    assert received.values == [1]
    assert ".nni/metrics has more than 64 MB that are not reports" in received.exits[0]["message"]
    first, *_ = [event for event in bench.call(bench.service.reports(bench.handles[name])) if hasattr(event, "value")]
    assert first.value == 1


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize("manager", ["the same", "another"])
def test_a_job_whose_keeper_was_stopped_ends_when_it_is_canceled(bench, manager):
    name, pid = running(bench, grace_s=1)
    stop(bench.handles[name]["pid"])
    if manager == "another":
        bench.restart()
    bench.call(bench.service.cancel(bench.handles[name]))
    eventually(lambda: not runs(pid))
    assert bench.wait(name).state is JobState.LOST


def again(job, command: str):
    name = job.name.removesuffix("-0") + "-1"
    return replace(job, name=name, attempt=1, spec={**job.spec, "job": name, "attempt": 1, "command": command})


@pytest.mark.parametrize("folder", ["readable", "hanging"])
@pytest.mark.parametrize("manager", ["the same", "another"])
def test_the_next_attempt_never_runs_beside_one_that_was_given_up(bench, disk, manager, folder):
    job = bench.job(f"echo $$ >> {quoted(bench.mark())}; sleep 60")
    bench.submit(job)
    eventually(bench.lines)
    first = int(bench.lines()[0])
    stop(bench.handles[job.name]["pid"])
    if manager == "another":
        bench.restart()
    if folder == "hanging":
        hangs(bench, disk, job.name)
    second = again(job, f"ps -o stat= -p {first} | grep -qv Z && echo both >> {quoted(bench.mark())}; exit 3")
    bench.receiver.expect(second.name, str(second.spec["token"]))
    bench.submit(second)
    assert bench.wait(second.name).exit_code == 3
    assert bench.lines() == [str(first)]
    assert not runs(first)
    disk.answers.set()


def test_the_next_attempt_waits_and_says_so_where_the_earlier_one_cannot_be_killed(bench, monkeypatch):
    job = bench.job(f"echo $$ >> {quoted(bench.mark())}; sleep 60")
    bench.submit(job)
    eventually(bench.lines)
    monkeypatch.setattr(_endings, "kill_groups", lambda *_: [4711])
    with pytest.raises(
        NoCapacity, match=r"(?s)an earlier attempt .* must end first: process group 4711 of .* still runs on"
    ):
        bench.call(bench.service.submit(again(job, "exit 3")))


def test_what_cannot_be_ended_is_told_at_the_end_of_the_service(bench, monkeypatch, caplog):
    name, pid = running(bench, grace_s=0)
    stop(bench.handles[name]["pid"])
    with monkeypatch.context() as patch:
        patch.setattr(_endings, "kill_groups", lambda *_: [4711])
        bench.call(bench.service.cancel(bench.handles[name]))
        eventually(lambda: "killing both" in caplog.text)
        with pytest.raises(ServiceError, match=r"(?s)process group 4711 of .* cannot be killed"):
            bench.call(bench.service.close())
    bench.open()
    assert runs(pid)


def test_what_was_just_told_to_end_keeps_its_grace_when_the_service_is_closed(bench):
    saving = f"save() {{ sleep 1; {bench.tell('saved')}; exit 0; }}; trap save TERM"
    name = bench.run(f"{saving}; {bench.tell('up')}; while :; do sleep 0.05; done", grace_s=30)
    bench.wait(name, JobState.RUNNING)
    eventually(bench.lines)
    bench.call(bench.service.cancel(bench.handles[name]))
    bench.restart()
    eventually(lambda: bench.lines() == ["up", "saved"])


def test_a_keeper_that_still_delivers_is_left_alone_by_the_next_attempt(bench):
    bench.receiver.break_requests = 10**6
    job = bench.job("exit 4")
    bench.submit(job)
    bench.wait(job.name, JobState.FAILED)
    keeper = bench.handles[job.name]["pid"]
    second = again(job, "exit 3")
    bench.receiver.expect(second.name, str(second.spec["token"]))
    bench.submit(second)
    assert bench.wait(second.name).exit_code == 3
    assert runs(keeper)
    bench.receiver.break_requests = 0
    eventually(lambda: bench.received(job.name).exits)


async def test_a_look_at_a_keeper_that_leaves_while_the_service_closes_ends_before_it(tmp_path, monkeypatch):
    service = LocalService("local", LocalConfig(), fake_context(tmp_path))
    folder, ended = AttemptFolder(tmp_path / "0"), []

    async def look_at_all(looks):
        for _ in range(9):
            await others_turn()
        ended.append(looks)
        return []

    async def close_server():
        service._dismissed_keepers.add(folder, {})
        service._dismissed_keepers.look_soon()
        monkeypatch.setattr(service._watch, "look_at_all", look_at_all)

    monkeypatch.setattr(service._server, "close", close_server)
    await service.close()
    assert len(ended) == 1
