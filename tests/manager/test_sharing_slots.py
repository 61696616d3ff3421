"""Slots and priority that are changed while an experiment runs: the services hear of it, now and after a resume."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, StartBench

from nnilite._engine.hybrid import HybridService, Member
from nnilite._views.profile_maker import as_it_is_now
from nnilite.errors import ConfigError, ServiceError
from nnilite.records import ExperimentLimits
from nnilite.services.slots import SlotTerms
from nnilite.testing.fakes import FakeService, fake_context

pytestmark = pytest.mark.usefixtures("impatient")

Asked = tuple[int | None, int | None]


class SharingService(FakeService):
    """Takes part if there is a limit, of the user or of its config."""

    own = SlotTerms()
    broken = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.terms = self.own

    def share_slots(self, limit: int | None, priority: int | None) -> None:
        if self.broken:
            raise ZeroDivisionError("division by zero")
        terms = self.own.changed(limit, priority)
        if terms.priority and terms.limit is None:
            raise ConfigError("takes effect only with maxSlots")
        self.terms = terms
        self.calls.append(f"share {limit} {priority}")


class QueueService(SharingService):
    """Has a queue, so that priorities count without slots."""

    def share_slots(self, limit: int | None, priority: int | None) -> None:
        self.terms = self.own.changed(limit, priority)


def limits_of(bench: Bench) -> Asked:
    limits = bench.engine.rules.settings.limits
    return (limits.max_slots, limits.priority)


LOCAL = {"platform": "local", "maxSlots": None, "priority": 0}
SHARED = {**LOCAL, "maxSlots": 2}
OTHER = {"platform": "slurm"}


@pytest.mark.parametrize(
    ("terms", "service", "shown"),
    [
        ((3, None), LOCAL, {**LOCAL, "maxSlots": 3}),
        ((3, -1), SHARED, {**LOCAL, "maxSlots": 3, "priority": -1}),
        ((None, 4), SHARED, {**SHARED, "priority": 4}),
        ((None, 4), LOCAL, LOCAL),
        ((3, 4), OTHER, OTHER),
        ((3, None), [SHARED, OTHER], [{**SHARED, "maxSlots": 3}, OTHER]),
        ((None, None), SHARED, SHARED),
    ],
)
def test_a_config_is_shown_with_the_terms_that_hold_now(terms: Asked, service: object, shown: object) -> None:
    limits = ExperimentLimits(1, max_slots=terms[0], priority=terms[1])
    assert as_it_is_now({"trainingService": service}, limits, {})["trainingService"] == shown


async def test_the_service_hears_what_is_changed_and_only_that(start_bench: StartBench) -> None:
    bench = await start_bench(service=SharingService)
    await bench.manager.control.update({"max_slots": 3})
    await bench.manager.control.update({"concurrency": 1})
    await bench.manager.control.update({"priority": -2})
    await bench.manager.control.update({"max_slots": None, "priority": None})
    told = [call for call in bench.fake.calls if call.startswith("share")]
    assert told == ["share 3 None", "share 3 -2", "share None None"]
    assert (await bench.manager.profile()).limits.max_slots is None


async def test_what_has_no_effect_is_refused_and_changes_nothing(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"trials of fake share no slots, .* trialConcurrency limits how many"):
        await bench.manager.control.update({"priority": 5, "concurrency": 1})
    assert (limits_of(bench), bench.engine.rules.settings.concurrency) == ((None, None), 2)


async def test_a_service_that_fails_when_it_is_told_ends_nothing(start_bench: StartBench) -> None:
    bench = await start_bench(service=SharingService)
    bench.service.broken = True  # type: ignore[attr-defined]
    with pytest.raises(ServiceError, match="fake failed with ZeroDivisionError"):
        await bench.manager.control.update({"max_slots": 5})
    assert limits_of(bench) == (None, None)
    await bench.run_all(4)


@pytest.mark.parametrize("service", [SharingService, FakeService])
async def test_after_a_resume_the_service_is_told_before_it_gets_a_trial(start_bench: StartBench, service: Any) -> None:
    """One that refuses by then, as another version of a plugin may, runs the trials all the same."""
    bench = await start_bench(service=service, max_slots=2, priority=5)
    await bench.run_all(4)
    if service is SharingService:
        assert bench.fake.calls[:2] == ["share 2 5", "open"]
    assert limits_of(bench) == (2, 5)


async def test_changes_that_come_together_are_all_kept(start_bench: StartBench) -> None:
    bench = await start_bench(service=SharingService)
    changes: list[dict[str, Any]] = [{"max_slots": 2}, {"priority": 7}, {"concurrency": 1}, {"max_trials": 3}]
    await asyncio.gather(*(bench.manager.control.update(change) for change in changes))
    known = bench.engine.rules.settings
    assert (known.max_slots, known.priority, known.concurrency, known.max_trials) == (2, 7, 1, 3)
    assert bench.service.terms == SlotTerms(2, 7)  # type: ignore[attr-defined]


def services(tmp_path: Path, *classes: type[FakeService]) -> tuple[HybridService, list[Any]]:
    context = fake_context(tmp_path)
    made = [one(one.__name__, None, context) for one in classes]
    return HybridService("hybrid", [Member(one, "true", None) for one in made], context), made


def test_of_several_services_those_with_slots_are_told(tmp_path: Path) -> None:
    hybrid, (slots, _, queue) = services(tmp_path, SharingService, FakeService, QueueService)
    hybrid.share_slots(2, 5)
    assert (slots.terms, queue.terms) == (SlotTerms(2, 5), SlotTerms(2, 5))


def test_one_of_several_services_for_which_the_terms_mean_nothing_is_as_configured(tmp_path: Path) -> None:
    hybrid, (slots, queue) = services(tmp_path, SharingService, QueueService)
    hybrid.share_slots(2, 5)
    hybrid.share_slots(None, 5)
    assert (slots.terms, queue.terms) == (SlotTerms(), SlotTerms(None, 5))


def test_if_no_service_has_slots_each_says_why(tmp_path: Path) -> None:
    hybrid, (slots, _) = services(tmp_path, SharingService, FakeService)
    hybrid.share_slots(2, 5)
    with pytest.raises(ConfigError, match=r"^SharingService: takes effect only with maxSlots; FakeService: trials of"):
        hybrid.share_slots(None, 5)
    assert slots.terms == SlotTerms(2, 5)
