"""The fakes do what their docstrings say; else tests of the manager that use them would prove nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nnilite.errors import NoCapacity
from nnilite.service import Job, JobState, JobStatus
from nnilite.testing import (
    BadService,
    FakeService,
    LyingService,
    NeverService,
    NoConfig,
    SlowService,
    fake_context,
)


def job(name: str = "nni-e-T-0") -> Job:
    return Job(name, "e", "T", 0, 0, {"token": "secret"})


def make(kind: type = FakeService, **more):
    return kind("fake", NoConfig(), fake_context(Path(), **more))


async def polled(service, *names: str) -> list[JobStatus]:
    return await service.poll([{"job": name} for name in names])


async def test_a_job_goes_through_the_states_that_the_test_says():
    service = make()
    handle = await service.submit(job())
    seen = [(await service.poll([handle]))[0].state]
    service.jobs["nni-e-T-0"].start()
    seen.append((await service.poll([handle]))[0].state)
    service.jobs["nni-e-T-0"].finish(3)
    [last] = await service.poll([handle])
    assert seen == [JobState.WAITING, JobState.RUNNING]
    assert (last.state, last.exit_code) == (JobState.FAILED, 3)


async def test_each_change_wakes_the_manager():
    wakes = []
    service = make(wake=lambda: wakes.append(1))
    await service.submit(job())
    service.jobs["nni-e-T-0"].start()
    service.jobs["nni-e-T-0"].lose()
    assert len(wakes) == 2


async def test_the_same_name_is_one_job():
    service = make()
    await service.submit(job())
    service.jobs["nni-e-T-0"].start()
    await service.submit(job())
    assert service.jobs["nni-e-T-0"].status.state is JobState.RUNNING


async def test_a_refusal_is_raised_as_long_as_it_is_set():
    service = make()
    service.refuse_with = NoCapacity("full")
    with pytest.raises(NoCapacity, match="full"):
        await service.submit(job())
    assert service.jobs == {}


async def test_a_disobedient_job_counts_cancels_and_goes_on():
    service = make()
    handle = await service.submit(job())
    service.jobs["nni-e-T-0"].obeys = False
    await service.cancel(handle)
    assert service.jobs["nni-e-T-0"].cancels == 1
    assert not service.jobs["nni-e-T-0"].status.state.ended


async def test_an_unknown_job_is_lost_and_harmless_to_cancel():
    service = make()
    await service.cancel({"job": "nobody"})
    [status] = await polled(service, "nobody")
    assert status.state is JobState.LOST


def test_the_slow_service_is_slow_and_right():
    service = make(SlowService)
    service.delay_s = 0.05
    loop = asyncio.new_event_loop()
    before = loop.time()
    handle = loop.run_until_complete(service.submit(job()))
    assert loop.time() - before >= 0.05
    loop.close()
    assert handle == {"job": "nni-e-T-0"}


@pytest.mark.parametrize("call", ["submit", "poll", "cancel", "open", "close", "reports"])
async def test_the_never_service_never_returns_but_can_be_given_up(call):
    service = make(NeverService)
    service.never = frozenset({call})
    argument = {"submit": [job()], "poll": [[]], "open": [], "close": []}.get(call, [{"job": "x"}])
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(getattr(service, call)(*argument), 0.05)
    assert service.timeouts == 1


@pytest.mark.parametrize("call", ["submit", "poll", "cancel"])
async def test_the_bad_service_raises_what_no_plugin_should(call):
    service = make(BadService)
    argument = {"submit": job(), "poll": []}.get(call, {"job": "x"})
    with pytest.raises(RuntimeError, match="a bug in the plugin"):
        await getattr(service, call)(argument)


LIES = {
    "short": lambda said: len(said) == 1,
    "garbage": lambda said: not any(isinstance(item, JobStatus) for item in said),
    "state": lambda said: not any(isinstance(item.state, JobState) for item in said),
    "alive": lambda said: {item.state for item in said} == {JobState.RUNNING},
    "dead": lambda said: {item.state for item in said} == {JobState.LOST},
    "restless": lambda said: len(said) == 2,
    "future": lambda said: all(item.started > 2e9 and item.ended < 0 for item in said),
}


@pytest.mark.parametrize("lie", LIES)
async def test_the_lying_service_lies_in_the_named_way(lie):
    service = make(LyingService)
    service.lie = lie
    handles = [await service.submit(job(name)) for name in ("a", "b")]
    service.jobs["a"].finish()
    service.jobs["b"].start()
    first, second = await service.poll(handles), await service.poll(handles)
    assert LIES[lie](first)
    assert (first == second) == (lie != "restless")
