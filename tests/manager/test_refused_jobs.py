"""A platform that refuses jobs after it took others has changed: trials wait with its reason, and none is burnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, StartBench
from hybrid_bench import hybrid_of, job

from nnilite._engine.hybrid import HybridService, Member
from nnilite.errors import ConfigError, JobRefused, NniliteError, NoCapacity, NotFound
from nnilite.records import ExperimentState, TrialState
from nnilite.testing.fakes import FakeService, fake_context

CLOSED = JobRefused("the partition is closed")
GONE = NotFound("there is no workspace 7")
OWN = ConfigError("the parameters take 2 MB, and a job holds 1 MB")


def reasons(bench: Bench) -> list[str]:
    return [trial.reason for trial in bench.live if trial.state is TrialState.WAITING]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("refusal", [CLOSED, GONE])
async def test_a_service_that_took_jobs_holds_its_trials_until_it_takes_them_again(
    bench: Bench, refusal: NniliteError
) -> None:
    await bench.run_all(1)
    bench.fake.refuse_with = refusal
    held = f"{bench.fake.name} takes no trials now, though it took earlier ones: {refusal} (trying again"
    await bench.until(lambda: any(reason.startswith(held) for reason in reasons(bench)))
    calls = len(bench.fake.calls)
    await bench.until(lambda: len(bench.fake.calls) > calls + 12)  # more than the tries of what hardly passes by itself
    assert bench.engine.rules.counts[TrialState.FAILED] == 0
    bench.fake.refuse_with = None
    await bench.run_all(4)
    await bench.until(lambda: bench.engine.rules.state is ExperimentState.DONE)
    assert bench.engine.rules.counts[TrialState.SUCCEEDED] == 4


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("refusal", [CLOSED, OWN])
async def test_what_no_job_has_passed_yet_ends_the_trial(start_bench: StartBench, refusal: NniliteError) -> None:
    def refusing(*arguments: Any) -> FakeService:
        made = FakeService(*arguments)
        made.refuse_with = refusal
        return made

    bench = await start_bench(service=refusing)
    await bench.until(lambda: bench.fake.calls)
    await bench.engine.caller.open()  # as at the first start: what the bench does is a resume
    await bench.until(lambda: bench.engine.rules.counts[TrialState.FAILED])


@pytest.mark.usefixtures("impatient")
async def test_a_refusal_for_the_trials_own_parameters_ends_that_trial_alone(bench: Bench) -> None:
    await bench.run_all(1)
    bench.fake.refuse_with = OWN
    await bench.until(lambda: bench.engine.rules.counts[TrialState.FAILED])


# several services


@pytest.fixture
def near(tmp_path: Path) -> FakeService:
    return FakeService("near", None, fake_context(tmp_path))


@pytest.fixture
def far(tmp_path: Path) -> FakeService:
    return FakeService("far", None, fake_context(tmp_path))


@pytest.fixture
def hybrid(near: FakeService, far: FakeService, tmp_path: Path) -> HybridService:
    return hybrid_of(tmp_path, Member(near, "true", None), Member(far, "true", None))


@pytest.mark.parametrize("refusal", [CLOSED, GONE])
async def test_the_other_members_get_the_jobs_of_one_that_takes_none_any_more(
    hybrid: HybridService, near: FakeService, far: FakeService, refusal: NniliteError
) -> None:
    await hybrid.open(resumed=True)  # so that all of them have worked
    near.refuse_with = refusal
    for number in range(5):
        assert (await hybrid.submit(job(number)))["service"] == "far"
    assert hybrid.aside() == {"near": str(refusal)}
    far.refuse_with = CLOSED
    with pytest.raises(NoCapacity, match=r"far: it takes no trials now, though it took earlier ones: the partition"):
        await hybrid.submit(job(7))


async def test_members_that_never_took_a_job_refuse_it_for_good(
    hybrid: HybridService, near: FakeService, far: FakeService
) -> None:
    near.refuse_with = far.refuse_with = CLOSED
    with pytest.raises(ConfigError, match=r"no service can run this trial: .*near: the partition is closed"):
        await hybrid.submit(job(0))
