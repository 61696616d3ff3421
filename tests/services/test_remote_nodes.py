"""Machines of trials on several of them: booked at once or not at all, whoever comes in which order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.records import Json
from nnilite.service import Handle, Job, JobState, ServiceContext
from nnilite.services.gpu import Gpu
from nnilite.services.node_places import nodes_of_job
from nnilite.ssh.errors import MachineError
from nnilite_remote._bookings import Booking, Bookings
from nnilite_remote._config import MachineConfig, RemoteConfig
from nnilite_remote._machine import Machine
from nnilite_remote._machine_choice import HostCandidate, choose_machines
from nnilite_remote._machines import Machines
from nnilite_remote._nodes import LOST, MEMBERS, check_nodes, name_of, parts_of, start_nodes
from nnilite_remote._pending_commands import PendingCommands
from nnilite_remote._service import RemoteService

HOSTS = ("a", "b", "c")


def find_job(name: str, nodes: int = 2) -> Job:
    return Job(name, "e", name, 0, 0, {"distributed": {"nodes": nodes, "processes": 1, "launcher": "torch"}})


def names_of(job: Job) -> list[str]:
    return [name_of(job.name, node) for node in range(nodes_of_job(job).most)]


def hosts_now(bookings: Bookings, gpus: int = 4) -> list[HostCandidate]:
    there = [Gpu(index) for index in range(gpus)]
    return [HostCandidate(host, host, slots=1, gpus=there, jobs=bookings.on(host)) for host in HOSTS]


def begin(bookings: Bookings, job: Job, hosts: Sequence[str] = HOSTS) -> bool:
    """Book the hosts of a job, as `submit` does; False if it has to wait."""
    try:
        candidates = [one for one in hosts_now(bookings) if one.key in hosts]
        chosen = choose_machines(candidates, 4, frozenset(), len(names_of(job)))
    except NoCapacity:
        return False
    booked = [Booking(one.key, "/d", one.gpus) for one in chosen]
    bookings.book_all(dict(zip(names_of(job), booked, strict=True)))
    return True


@settings(max_examples=3)
@given(seed=st.integers(0, 10_000))
def test_200_random_arrivals_that_want_two_of_three_hosts_never_hold_half_and_all_run(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)
    bookings = Bookings(tmp_path_factory.mktemp("bookings") / "jobs.json")
    waiting = [find_job(f"j-{number}", chance.choice([1, 2, 2, 3])) for number in range(200)]
    running: list[Job] = []
    while waiting or running:
        chance.shuffle(waiting)
        begun = [job for job in waiting[:8] if begin(bookings, job)]
        waiting = [job for job in waiting if job not in begun]
        running += begun
        for host in HOSTS:
            assert len(bookings.on(host)) <= 1
        for job in running:
            assert all(bookings.get(name) for name in names_of(job))
        assert not any(bookings.get(name) for job in waiting for name in names_of(job))
        assert running, "all wait for each other"
        ended = running.pop(chance.randrange(len(running)))
        for name in names_of(ended):
            bookings.free(name)


def test_a_job_that_waits_says_how_many_of_its_machines_are_free(tmp_path: Path) -> None:
    bookings = Bookings(tmp_path / "jobs.json")
    assert begin(bookings, find_job("first", 1))
    with pytest.raises(NoCapacity, match=r"has 2 of 3 machines with 4 free GPUs: a runs 1 of 1 trials \(slots\)"):
        choose_machines(hosts_now(bookings), 4, frozenset(), 3)


async def test_if_a_machine_cannot_start_after_others_have_they_are_ended_and_the_attempt_is_lost() -> None:
    job, ended = find_job("j"), []
    jobs = [Job(name, "e", "t", 0, 0, {}) for name in names_of(job)]

    async def start(one: Job, machine: object, booking: Booking) -> Handle:
        if one.name == "j":
            raise ServiceError("h1 has no disk space")
        return {"job": one.name, "machine": booking.machine}

    async def end(handle: Handle) -> None:
        ended.append(handle["job"])

    placed = [(host, Booking(host, "/d")) for host in ("a", "b")]
    handle = await start_nodes(jobs, placed, start, lambda name: name == "j/1", end)  # type: ignore[arg-type]
    assert handle[LOST] == "not all of its machines could start it: h1 has no disk space"
    assert (handle["job"], ended) == ("j", ["j/1"])
    assert [part["job"] for part in parts_of(handle)[1:]] == ["j/1"]
    assert handle[MEMBERS]


async def test_a_start_without_an_answer_is_tried_again_on_the_same_machines() -> None:
    jobs = [Job(name, "e", "t", 0, 0, {}) for name in names_of(find_job("j"))]

    async def start(one: Job, machine: object, booking: Booking) -> Handle:
        if one.name == "j":
            raise ServiceError("the link broke")
        return {"job": one.name}

    async def end(handle: Handle) -> None:
        raise AssertionError(handle)

    placed = [(host, Booking(host, "/d")) for host in ("a", "b")]
    with pytest.raises(ServiceError, match="the link broke"):
        await start_nodes(jobs, placed, start, lambda name: True, end)  # type: ignore[arg-type]


def context_with(tmp_path: Path, nodes: int) -> ServiceContext:
    told = {"distributed": {"nodes": nodes}}
    return ServiceContext("e", tmp_path, tmp_path, None, tmp_path, str, lambda: None, told)  # type: ignore[arg-type]


def test_more_nodes_than_machines_and_shared_slots_are_refused(tmp_path: Path) -> None:
    machines = [MachineConfig(host=host, user="u") for host in HOSTS]
    with pytest.raises(ConfigError, match="is 4, but machineList has 3 machines for trials; name more, or use fewer"):
        check_nodes(RemoteConfig(machines), context_with(tmp_path, 4))
    with pytest.raises(ConfigError, match="cannot be used for trials of several nodes; set slots of each machine"):
        check_nodes(RemoteConfig(machines, max_slots=1), context_with(tmp_path, 2))


def test_an_experiment_of_several_nodes_takes_no_shared_slots_later_either(tmp_path: Path) -> None:
    machines = [MachineConfig(host=host, user="u") for host in HOSTS]
    with pytest.raises(ConfigError, match="cannot be used for trials of several nodes"):
        RemoteService("remote", RemoteConfig(machines), context_with(tmp_path, 2)).share_slots(2, None)
    RemoteService("remote", RemoteConfig(machines), context_with(tmp_path, 1)).share_slots(2, None)


@pytest.mark.parametrize(
    "answer", [7, [], [7], [None], [{}], [{"state": "x"}], [{"state": []}], [{"state": "RUNNING"}] * 2]
)
async def test_a_machine_whose_answers_mean_nothing_concerns_no_other(tmp_path: Path, answer: list[Json]) -> None:
    async def statuses(jobs: list[Json]) -> list[Json]:
        return list(answer)

    machine = SimpleNamespace(up=True, title="bad", attempts=SimpleNamespace(statuses=statuses))
    config = RemoteConfig([MachineConfig(host="a", user="u")])
    machines = Machines(config, context_with(tmp_path, 1), PendingCommands(tmp_path / "owed.json"))
    machines._known["a"] = cast("Machine", machine)
    found = await machines.statuses("a", [{"job": "j", "machine": "a"}])
    assert (found["j"].state, found["j"].host) == (JobState.UNKNOWN, "bad")


async def test_a_machine_that_fails_right_when_its_service_closes_does_not_hold_that_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes, failure = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def come_up(machine: Machine) -> None:
        comes.set()
        await asyncio.wait_for(failure, 60)  # as calls of its session do

    monkeypatch.setattr(Machine, "_bring_up", come_up)
    config = RemoteConfig([MachineConfig(host="a", user="u")])
    machines = Machines(config, context_with(tmp_path, 1), PendingCommands(tmp_path / "owed.json"))
    machines.start(Mock())
    await comes.wait()
    failure.set_exception(MachineError("no space is left there"))
    await asyncio.wait_for(machines.close(), 30)


def test_an_elastic_job_begins_with_the_machines_that_are_free_if_they_are_enough(tmp_path: Path) -> None:
    bookings = Bookings(tmp_path / "jobs.json")
    assert begin(bookings, find_job("first", 1))
    assert [one.key for one in choose_machines(hosts_now(bookings), 4, frozenset(), 3, fewest=1)] == ["b", "c"]
    with pytest.raises(NoCapacity, match="has 2 of 3 machines"):
        choose_machines(hosts_now(bookings), 4, frozenset(), 4, fewest=3)
