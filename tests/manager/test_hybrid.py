"""HybridService training services in one experiment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hybrid_bench import hybrid_of, job

from nnilite._engine.hybrid import HybridService, Member
from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.service import Handle, Host, JobState
from nnilite.testing.fakes import BadService, FakeService, fake_context


@pytest.fixture
def members(tmp_path: Path) -> tuple[FakeService, FakeService]:
    context = fake_context(tmp_path)
    return FakeService("near", None, context), FakeService("far", None, context)


@pytest.fixture
def hybrid(members: tuple[FakeService, FakeService], tmp_path: Path) -> HybridService:
    return hybrid_of(tmp_path, Member(members[0], "near command", 0), Member(members[1], "far command", 2))


async def test_jobs_are_spread_and_run_with_what_their_service_says(
    hybrid: HybridService, members: tuple[FakeService, ...]
) -> None:
    await hybrid.open()
    for number in range(4):
        await hybrid.submit(job(number))
    near, far = members
    assert [len(near.jobs), len(far.jobs)] == [2, 2]
    assert {j.job.spec["command"] for j in far.jobs.values()} == {"far command"}
    assert {j.job.gpus for j in far.jobs.values()} == {2}


async def test_a_full_service_is_passed_over(hybrid: HybridService, members: tuple[FakeService, ...]) -> None:
    members[0].refuse_with = NoCapacity("no room")
    for number in range(3):
        await hybrid.submit(job(number))
    assert len(members[1].jobs) == 3


async def test_without_room_anywhere_the_reasons_of_all_are_told(
    hybrid: HybridService, members: tuple[FakeService, ...]
) -> None:
    members[0].refuse_with = NoCapacity("no room")
    members[1].refuse_with = NoCapacity("the queue is full")
    with pytest.raises(NoCapacity, match="near: no room; far: the queue is full"):
        await hybrid.submit(job(0))


async def test_a_service_that_cannot_tell_does_not_hide_the_others_jobs(
    hybrid: HybridService, members: tuple[FakeService, ...]
) -> None:
    async def unreachable(handles: object) -> list[object]:
        raise ServiceError("connection refused")

    handles = [await hybrid.submit(job(number)) for number in range(2)]
    members[0].jobs["nni-e-t0-0"].finish(0)
    members[1].poll = unreachable  # type: ignore[method-assign,assignment]
    assert [status.state for status in await hybrid.poll(handles)] == [JobState.SUCCEEDED, JobState.UNKNOWN]


async def test_one_service_that_cannot_be_opened_is_set_aside(tmp_path: Path) -> None:
    class Down(BadService):
        async def open(self) -> None:
            raise ServiceError("host unreachable")

    context = fake_context(tmp_path)
    down, up = Down("down", None, context), FakeService("up", None, context)
    hybrid = hybrid_of(tmp_path, Member(down, "a", None), Member(up, "b", None))
    await hybrid.open()
    await hybrid.submit(job(0))
    assert [(host.name, host.state, host.reason) for host in hybrid.hosts()] == [("down", "down", "host unreachable")]
    assert list(up.jobs) == ["nni-e-t0-0"]


async def test_one_that_was_set_aside_is_opened_for_the_jobs_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(FakeService):
        there, tries = False, 0

        async def open(self) -> None:
            self.tries += 1
            if not self.there:
                raise ServiceError("host unreachable")

    context = fake_context(tmp_path)
    away, up = Away("away", None, context), FakeService("up", None, context)
    hybrid = hybrid_of(tmp_path, Member(away, "a", None), Member(up, "b", None))
    handle = {"service": "away", "handle": await away.submit(job(0))}
    await hybrid.open()
    states = [status.state for status in await hybrid.poll([handle])]
    with pytest.raises(ServiceError, match="host unreachable"):
        await hybrid.remove(handle)
    away.there = True
    assert (await hybrid.poll([handle]))[0].state is JobState.UNKNOWN
    assert away.tries == 2, "once at the start, and once in a minute"
    monkeypatch.setattr(hybrid._closed, "_next_try", {})
    assert [*states, *(status.state for status in await hybrid.poll([handle]))] == [JobState.UNKNOWN, JobState.WAITING]
    assert hybrid.hosts() == away.hosts() + up.hosts()


async def test_services_that_were_all_away_can_be_opened_later(tmp_path: Path) -> None:
    context = fake_context(tmp_path)
    away = BadService("away", None, context)
    away.bad, away.error = frozenset({"open"}), ServiceError("host unreachable")
    hybrid = hybrid_of(tmp_path, Member(away, "a", None))
    with pytest.raises(ServiceError, match="host unreachable"):
        await hybrid.open()
    away.bad = frozenset()
    await hybrid.open()
    assert hybrid.hosts() == []


async def test_what_a_service_leaves_behind_is_told_and_the_others_are_closed_all_the_same(tmp_path: Path) -> None:
    closed = []

    class Leaving(FakeService):
        async def close(self) -> None:
            closed.append(self.name)
            raise ServiceError(f"{self.name} was away")

    context = fake_context(tmp_path)
    members = [Member(Leaving(name, None, context), "a", None) for name in ("near", "far")]
    with pytest.raises(ServiceError, match="near was away; far was away"):
        await HybridService("hybrid", members, context).close()
    assert closed == ["near", "far"]


async def test_what_is_left_behind_is_told_though_another_service_cannot_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Leaving(FakeService):
        async def close(self) -> None:
            raise ServiceError("near was away")

    class Hanging(FakeService):
        async def close(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr("nnilite._engine.hybrid._CLOSE_TIMEOUT_S", 0.05)
    made = [kind(name, None, fake_context(tmp_path)) for name, kind in (("far", Hanging), ("near", Leaving))]
    hybrid = HybridService("hybrid", [Member(service, "a", None) for service in made], fake_context(tmp_path))
    with pytest.raises(ServiceError, match=r"^near was away$"):
        await asyncio.wait_for(hybrid.close(), 60)


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ({"near": "has 1 GPU"}, r"^trainingService: near: has 1 GPU$"),
        ({"near": "has 1 GPU", "far": "has none"}, "no service can run a trial: near: has 1 GPU; far: has none"),
    ],
)
async def test_a_dry_run_says_which_services_can_never_run_a_trial(
    tmp_path: Path, faults: dict[str, str], says: str
) -> None:
    class Small(FakeService):
        async def check(self) -> None:
            if self.name in faults:
                raise ConfigError(faults[self.name])

    context = fake_context(tmp_path)
    members = [Member(Small(name, None, context), "a", 2) for name in ("near", "far")]
    with pytest.raises(ConfigError, match=says):
        await HybridService("hybrid", members, context).check()


class AtHome(FakeService):
    """Runs jobs in folders of this machine."""

    def folder(self, handle: Handle) -> Path:
        return Path("/here", str(handle["job"]))


def test_the_member_that_has_a_job_names_its_folder(tmp_path: Path) -> None:
    context = fake_context(tmp_path)
    members = [Member(one, "true", None) for one in (AtHome("home", None, context), FakeService("far", None, context))]
    hybrid = HybridService("hybrid", members, context)
    found = [hybrid.folder({"service": name, "handle": {"job": "j"}}) for name in ("home", "far")]
    assert found == [Path("/here/j"), None]


async def test_a_host_of_two_services_says_which_one_it_is_of(
    hybrid: HybridService, members: tuple[FakeService, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for member in members:
        monkeypatch.setattr(member, "hosts", lambda: [Host("vm", "up", details={"cpuPercent": 7})])
    await hybrid.open()
    found = [(host.name, dict(host.details)) for host in hybrid.hosts()]
    assert found == [("vm", {"cpuPercent": 7, "service": member.name}) for member in members]
