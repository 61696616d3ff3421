"""Elastic trials on SSH hosts: they grow when hosts are free, replace what is lost, and leave nothing behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nnilite.errors import Conflict, NoCapacity
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext
from nnilite_remote._bookings import Booking, Bookings
from nnilite_remote._config import MachineConfig, RemoteConfig
from nnilite_remote._elastic_jobs import LOST_S, ElasticJobs
from nnilite_remote._machine import Machine
from nnilite_remote._machine_choice import Choice
from nnilite_remote._nodes import MEMBERS, name_of, unanswered
from nnilite_remote._service import RemoteService

JOB = Job("j-e-t-0", "e", "t", 0, 0, {"distributed": {"nodes": 3, "min": 1, "max": 3}, "token": "secret"})
RUNNING = JobStatus(JobState.RUNNING)


class Hosts:
    """The machines, what is started and ended on them, and an elastic job that began on the first one."""

    def __init__(self, folder: Path, count: int = 4) -> None:
        self.known = {f"h{n}": self._host(f"h{n}") for n in range(count)}
        self.ended: set[str] = set()
        self.started: list[tuple[str, str]] = []
        self.canceled: list[str] = []
        self.removed: list[str] = []
        self.chores: list[Coroutine[Any, Any, None]] = []
        self.bookings = Bookings(folder / "jobs.json")
        self.place = folder / "elastic.json"
        self.jobs = self.next_manager()
        self.jobs.keep(JOB, 1)
        self.bookings.book_all({JOB.name: Booking("h0", "/d")})
        self.handle: Handle = {"job": JOB.name, "machine": "h0", "directory": "/d", "gpus": None}

    @staticmethod
    def _host(key: str) -> SimpleNamespace:
        config = SimpleNamespace(key=key, host=key)
        return SimpleNamespace(config=config, title=key, up=True, silent_s=0.0, root="/r", facts={"host": key})

    def next_manager(self) -> ElasticJobs:
        machines: Any = self
        return ElasticJobs(self.place, self.bookings, machines, self.choose, self.start)

    def __contains__(self, key: str) -> bool:
        return key in self.known

    def __getitem__(self, key: str) -> SimpleNamespace:
        return self.known[key]

    def get(self, key: str) -> SimpleNamespace | None:
        return self.known.get(key)

    def do_aside(self, work: Coroutine[Any, Any, None]) -> None:
        self.chores.append(work)

    async def choose(self, job: Job, used: AbstractSet[str]) -> Choice:
        free = [key for key in self.known if key not in used and not self.bookings.on(key) and self.known[key].up]
        if not free:
            raise NoCapacity("all are taken")
        return Choice(free[0], None)

    async def start(self, job: Job, machine: Any, booking: Booking) -> Handle:
        self.started.append((job.name, booking.machine))
        assert booking.directory == f"/r/e/trials/t/0.{job.name.rpartition('/')[2]}"
        assert job.spec["distributed"]["first"] == ["h0"]
        return {}

    async def statuses(self, key: str, parts: list[Handle]) -> dict[str, JobStatus]:
        if not self.known[key].up:
            return {str(part["job"]): JobStatus(JobState.UNKNOWN) for part in parts}
        ended = [JobState.LOST if part["job"] in self.ended else JobState.RUNNING for part in parts]
        return {str(part["job"]): JobStatus(state) for part, state in zip(parts, ended, strict=True)}

    async def cancel(self, part: Handle) -> None:
        self.canceled.append(str(part["job"]))

    async def remove(self, part: Handle) -> None:
        self.removed.append(str(part["job"]))

    async def poll(self, times: int = 1) -> None:
        for _ in range(times):
            await self.jobs.look_after([self.handle], [RUNNING])
            chores, self.chores = self.chores, []
            await asyncio.gather(*chores)


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


async def test_a_job_grows_one_host_after_the_other_and_no_further_than_it_may(hosts: Hosts) -> None:
    await hosts.poll(5)
    assert hosts.started == [(name_of(JOB.name, 1), "h1"), (name_of(JOB.name, 2), "h2")]
    assert [one["machine"] for one in hosts.jobs.joined(hosts.handle)] == ["h1", "h2"]


async def test_a_part_that_has_ended_is_replaced_under_a_number_that_none_has_had(hosts: Hosts) -> None:
    await hosts.poll(2)
    hosts.ended.add(name_of(JOB.name, 1))
    await hosts.poll(2)
    assert hosts.removed == [name_of(JOB.name, 1)]
    assert hosts.started[-1] == (name_of(JOB.name, 3), "h1")
    assert hosts.bookings.get(name_of(JOB.name, 1)) is None


async def test_the_next_manager_goes_on_where_the_killed_one_was(hosts: Hosts) -> None:
    await hosts.poll(1)
    hosts.jobs = hosts.next_manager()
    hosts.jobs.load()
    await hosts.poll(3)
    assert hosts.started == [(name_of(JOB.name, 1), "h1"), (name_of(JOB.name, 2), "h2")]
    assert hosts.place.stat().st_mode & 0o077 == 0


async def test_a_host_that_is_silent_for_too_long_is_replaced_and_its_part_stays_booked_there(hosts: Hosts) -> None:
    await hosts.poll(2)
    hosts.known["h1"].up, hosts.known["h1"].silent_s = False, LOST_S - 1
    await hosts.poll(2)
    assert len(hosts.started) == 2
    hosts.known["h1"].silent_s = LOST_S + 1
    await hosts.poll(2)
    assert hosts.started[-1] == (name_of(JOB.name, 3), "h3")
    assert hosts.bookings.get(name_of(JOB.name, 1)) == Booking("h1", "/r/e/trials/t/0.1")


async def test_hosts_are_left_to_a_trial_that_waits_for_them(hosts: Hosts) -> None:
    with pytest.raises(NoCapacity), hosts.jobs.give_way():
        raise NoCapacity("has 1 of 2 machines")
    await hosts.poll(3)
    assert hosts.started == []


async def test_a_part_that_starts_while_its_job_ends_is_ended(hosts: Hosts) -> None:
    start = hosts.start

    async def end_first(job: Job, machine: Any, booking: Booking) -> Handle:
        hosts.jobs.end(hosts.handle)
        return await start(job, machine, booking)

    hosts.jobs._start = end_first
    await hosts.poll(1)
    await asyncio.gather(*hosts.chores)
    assert set(hosts.canceled) == {name_of(JOB.name, 1)}
    hosts.chores = []
    await hosts.poll(2)
    assert len(hosts.started) == 1


async def test_a_drill_takes_no_node_twice_and_none_that_the_job_needs(hosts: Hosts) -> None:
    with pytest.raises(Conflict, match="no node to spare"):
        await hosts.jobs.take_node(hosts.handle)
    await hosts.poll(2)
    await hosts.jobs.take_node(hosts.handle)
    await hosts.jobs.take_node(hosts.handle)
    assert set(hosts.canceled) == {name_of(JOB.name, 1), name_of(JOB.name, 2)}
    with pytest.raises(Conflict, match="no node to spare"):
        await hosts.jobs.take_node(hosts.handle)
    hosts.ended |= set(hosts.canceled)
    await hosts.poll(2)
    assert len(hosts.started) == 2


async def test_damaged_notes_are_left_out(hosts: Hosts) -> None:
    spec = '{"name": "j", "experiment": "e", "trial": "t", "attempt": 0, "sequence": 0, "spec": 7}'
    for text in (
        f'{{"j": {{"job": {spec}, "next": 1}}}}',
        "[",
        "[]",
        '{"j": {}}',
        '{"j": {"job": {"name": 1}, "next": 1}}',
        '{"j": {"job": 7, "next": "x"}}',
        hosts.place.read_text().replace('"nodes": 3', '"nodes": Infinity'),
        hosts.place.read_text().replace('"next": 1', '"next": Infinity'),
        hosts.place.read_text().replace('"name": "j-e-t-0"', '"name": "another"'),
    ):
        hosts.place.write_text(text)
        hosts.jobs = hosts.next_manager()
        hosts.jobs.load()
        assert JOB.name not in hosts.jobs


async def test_nothing_is_kept_of_a_job_that_has_ended(hosts: Hosts) -> None:
    await hosts.poll(2)
    await hosts.jobs.take_node(hosts.handle)
    hosts.ended.add(name_of(JOB.name, 2))
    await hosts.poll(2)
    hosts.jobs.end(hosts.handle)
    hosts.jobs._wait(JOB.name, 5)
    kept = [value for value in vars(hosts.jobs).values() if isinstance(value, dict | set)]
    kept += vars(hosts.jobs._pauses).values()
    assert len(kept) == 8
    assert not any(kept)
    for chore in hosts.chores:
        chore.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda found: "[",
        lambda found: "[]",
        lambda found: json.dumps({**found, f"{JOB.name}/{'1' * 5000}": found[JOB.name]}),
        lambda found: json.dumps({**found, f"{JOB.name}/1": 7}),
        lambda found: json.dumps({name: one for name, one in found.items() if "/" in name}),
    ],
)
async def test_damaged_bookings_stop_no_elastic_trial(tmp_path: Path, damage: Callable[[Any], str]) -> None:
    machines = [MachineConfig(host=host, user="u") for host in ("h0", "h1", "h2")]
    told: dict[str, Any] = {"distributed": {"nodes": {"min": 1, "max": 3}}}
    context = ServiceContext("e", tmp_path, tmp_path, None, tmp_path, str, lambda: None, told)  # type: ignore[arg-type]
    config = RemoteConfig(machines)
    before = RemoteService("remote", config, context)
    before._elastic.keep(JOB, 2)
    parts = {name_of(JOB.name, number): Booking(f"h{number}", f"/d.{number}") for number in range(3)}
    before._bookings.book_all(parts)
    place = tmp_path / "remote-jobs.json"
    place.write_text(damage(json.loads(place.read_text())))

    service = RemoteService("remote", config, context)
    service._bookings.load()
    service._elastic.load()

    for key in ("h0", "h1", "h2"):
        machine = SimpleNamespace(up=False, title=key, silent_s=0.0, away=lambda: "is down: no route")
        service.machines._known[key] = cast("Machine", machine)
    handles = [unanswered(name, one) for name, one in list(parts.items())[:2]]
    for _ in range(2):
        [found] = await service.poll([{**handles[0], MEMBERS: handles[1:]}])
        assert found.state is JobState.UNKNOWN  # they are off, and nothing more is known
    assert JOB.name in service._elastic
    assert [name for name, _ in service._bookings.parts(JOB.name)][:2] == [name_of(JOB.name, n) for n in (0, 1)]


async def test_notes_from_before_the_last_part_started_give_no_number_twice(hosts: Hosts) -> None:
    older = hosts.place.read_text()
    await hosts.poll(1)
    hosts.place.write_text(older)
    hosts.jobs = hosts.next_manager()
    hosts.jobs.load()
    await hosts.poll(1)
    assert hosts.started == [(name_of(JOB.name, 1), "h1"), (name_of(JOB.name, 2), "h2")]


async def test_a_host_where_parts_end_at_once_does_not_get_one_after_the_other(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, count=3)
    for _ in range(20):
        hosts.ended |= {name for name, _ in hosts.started}
        await hosts.poll(2)
    assert [host for _, host in hosts.started] == ["h1", "h2"] * 2


async def test_a_job_that_is_to_end_does_not_grow(hosts: Hosts) -> None:
    await hosts.poll(1)
    hosts.jobs.grow_no_more(hosts.handle)
    await hosts.poll(3)
    assert hosts.started == [(name_of(JOB.name, 1), "h1")]


async def test_hosts_that_do_not_answer_are_asked_for_the_parts_of_all_jobs_at_once(hosts: Hosts) -> None:
    second = replace(JOB, name="j-e-u-0", trial="u")
    hosts.jobs.keep(second, 1)
    hosts.bookings.book_all(
        {
            second.name: Booking("h1", "/d"),
            f"{JOB.name}/1": Booking("h2", "/d"),
            f"{second.name}/1": Booking("h3", "/d"),
        }
    )
    asked, all_are_asked = [], asyncio.Event()

    async def hang(key: str, parts: list[Handle]) -> dict[str, JobStatus]:
        asked.append(key)
        if len(asked) == 2:
            all_are_asked.set()
        await all_are_asked.wait()
        return {str(part["job"]): RUNNING for part in parts}

    hosts.statuses = hang  # type: ignore[method-assign]
    handles: list[Handle] = [hosts.handle, {**hosts.handle, "job": second.name, "machine": "h1"}]
    await asyncio.wait_for(hosts.jobs.look_after(handles, [RUNNING, RUNNING]), 60)
    assert set(asked) == {"h2", "h3"}
    for chore in hosts.chores:
        chore.close()
