"""Members of a hybrid service that refuse for good, or break: none of them keeps a trial from the others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hybrid_bench import hybrid_of, job
from simulation import EMPTY

from nnilite._engine import messages
from nnilite._engine.hybrid import HybridService, Member
from nnilite._engine.rules import Rules
from nnilite.errors import ConfigError, NniliteError, NoCapacity, PluginError, ServiceError
from nnilite.records import TrialState
from nnilite.service import JobState
from nnilite.testing.fakes import BadService, FakeService, fake_context

NEVER = ConfigError("a node has 1 GPU")


@pytest.fixture
def near(tmp_path: Path) -> FakeService:
    return FakeService("near", None, fake_context(tmp_path))


@pytest.fixture
def far(tmp_path: Path) -> FakeService:
    return FakeService("far", None, fake_context(tmp_path))


@pytest.fixture
def hybrid(near: FakeService, far: FakeService, tmp_path: Path) -> HybridService:
    return hybrid_of(tmp_path, Member(near, "true", None), Member(far, "true", None))


async def test_a_member_that_refuses_a_job_for_good_is_not_asked_for_it_again(
    hybrid: HybridService, near: FakeService, far: FakeService
) -> None:
    near.refuse_with, far.refuse_with = NEVER, NoCapacity("the queue is full")
    for _ in range(3):
        with pytest.raises(NoCapacity, match=r"far: the queue is full; near: a node has 1 GPU"):
            await hybrid.submit(job(0))
    assert near.calls == ["submit nni-e-t0-0"]
    far.refuse_with = None
    assert (await hybrid.submit(job(0)))["service"] == "far"


async def test_a_member_that_refuses_all_jobs_for_good_gets_no_more_and_says_why(
    hybrid: HybridService, near: FakeService, far: FakeService
) -> None:
    near.refuse_with = NEVER
    for number in range(6):
        await hybrid.submit(job(number))
    assert len(near.calls) == 3
    assert len(far.jobs) == 6
    assert hybrid.aside() == {"near": "it refuses all trials: a node has 1 GPU"}


async def test_a_refusal_of_one_job_keeps_no_other_job_from_a_member(hybrid: HybridService, near: FakeService) -> None:
    for number in range(12):
        near.refuse_with = NEVER if number % 4 == 0 else None
        await hybrid.submit(job(number))
    assert hybrid.aside() == {}
    assert near.jobs


async def test_a_trial_that_all_have_refused_for_good_fails_with_the_reasons(
    hybrid: HybridService, near: FakeService, far: FakeService
) -> None:
    near.refuse_with, far.refuse_with = NEVER, PluginError("the library is gone")
    for number in range(5):
        with pytest.raises(ConfigError, match=r"no service can run this trial: .*near: a node has 1 GPU"):
            await hybrid.submit(job(number))


@pytest.mark.parametrize("error", [ConfigError("wrong password"), PluginError("no library"), ServiceError("away")])
async def test_at_a_resume_a_member_that_cannot_be_opened_keeps_no_trial_from_the_others(
    error: NniliteError, far: FakeService, tmp_path: Path
) -> None:
    near = BadService("near", None, fake_context(tmp_path))
    near.bad, near.error = frozenset({"open"}), error
    hybrid = hybrid_of(tmp_path, Member(near, "true", None), Member(far, "true", None))
    await hybrid.open(resumed=True)
    for number in range(3):
        await hybrid.submit(job(number))
    assert [status.state for status in await hybrid.poll([{"service": "near", "handle": {}}])] == [JobState.UNKNOWN]
    assert len(far.jobs) == 3
    assert str(error) in hybrid.aside()["near"]


async def test_a_new_experiment_is_refused_where_a_member_can_never_work(far: FakeService, tmp_path: Path) -> None:
    near = BadService("near", None, fake_context(tmp_path))
    near.bad, near.error = frozenset({"open"}), ConfigError("wrong password")
    hybrid = hybrid_of(tmp_path, Member(near, "true", None), Member(far, "true", None))
    with pytest.raises(ConfigError, match="wrong password"):
        await hybrid.open()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ConfigError("wrong password")])
async def test_a_member_that_breaks_when_polled_does_not_hide_the_others_jobs(
    error: Exception, far: FakeService, tmp_path: Path
) -> None:
    near = BadService("near", None, fake_context(tmp_path))
    near.bad, near.error = frozenset({"poll"}), error
    hybrid = hybrid_of(tmp_path, Member(near, "true", None), Member(far, "true", None))
    await hybrid.open()
    handles = [await hybrid.submit(job(number)) for number in range(2)]
    far.jobs["nni-e-t1-0"].start()
    assert [status.state for status in await hybrid.poll(handles)] == [JobState.UNKNOWN, JobState.RUNNING]


def test_a_fault_that_hardly_passes_is_tried_some_times_and_then_ends_the_trial() -> None:
    rules = Rules(messages.Settings(1), EMPTY, 0.0)
    rules.step(messages.Customized("t", {}, 0.0))
    for number in range(8):
        assert rules.live["t"].trial.state is TrialState.WAITING
        now = 100.0 * number
        rules.step(messages.Tick(now, now))
        last = rules.step(messages.SubmitRefused("t", 0, "fake failed with TypeError: None", False, now, lasting=True))
    assert rules.live == {}
    [trial] = [one.trial for one in last.records if isinstance(one, messages.SaveTrial)]
    assert (trial.state, trial.reason) == (TrialState.FAILED, "fake failed with TypeError: None")


def after_refusals(refusals: Iterable[dict[str, bool]]) -> Rules:
    """Rules with one trial, after a service has refused it in these ways, one after the other."""
    rules = Rules(messages.Settings(1), EMPTY, 0.0)
    rules.step(messages.Customized("t", {}, 0.0))
    for number, how in enumerate(refusals):
        now = 100.0 * number
        rules.step(messages.Tick(now, now))
        rules.step(messages.SubmitRefused("t", 0, "a word", how["busy"], now, lasting=how["lasting"]))
    return rules


def test_an_outage_before_it_does_not_count_among_those_tries() -> None:
    rules = after_refusals({"busy": False, "lasting": number % 8 == 7} for number in range(30))
    assert rules.live["t"].trial.state is TrialState.WAITING


def test_a_service_that_had_no_room_meanwhile_has_answered() -> None:
    rules = after_refusals({"busy": number % 5 == 4, "lasting": number % 5 != 4} for number in range(30))
    assert rules.live["t"].refusals == 0
    assert rules.live["t"].trial.state is TrialState.WAITING
