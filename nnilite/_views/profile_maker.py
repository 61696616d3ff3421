"""Makes the profile of an experiment, which the REST interface sends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnilite import _version
from nnilite._answers.backend import Listed, Profile, ServiceState
from nnilite._experiments import registry
from nnilite._store.reader import Reader
from nnilite._views.experiment_facts import ExperimentFacts, ExperimentProgress
from nnilite._views.latest_notices import LatestNotices
from nnilite._webhooks.undelivered import Undelivered
from nnilite.records import ExperimentLimits, Json


class ProfileMaker:
    """Makes profiles of the facts in `about`, which their owner may replace, and of the progress."""

    def __init__(self, about: ExperimentFacts, reader: Reader) -> None:
        self.about = about
        self._reader = reader
        self._notices = LatestNotices(reader)
        self._undelivered = Undelivered(about.directory, about.config, about.maximize)

    async def make(self, now: ExperimentProgress, read_only: bool = False, cannot_resume: str = "") -> Profile:
        owed = (
            await asyncio.to_thread(self._undelivered.look, self._reader.path) if self._undelivered.is_possible else ()
        )
        notices = await self._notices.find(self.about.objectives, self.about.can_preload, self.about.searched)
        about = self.about
        return Profile(
            id=about.id,
            name=about.name or str(about.config.get("experimentName", "")),
            state=now.state,
            reason=now.reason,
            config=as_it_is_now(about.config, now.limits, about.space),
            space=about.space,
            platforms=about.platforms,
            directory=str(about.directory),
            version=_version.__version__,
            created=about.created,
            started=about.created,
            ended=now.ended,
            duration_s=now.duration_s,
            limits=now.limits,
            counts=dict(now.counts),
            best=now.best,
            optimize="maximize" if about.maximize else "minimize",
            objectives=about.objectives,
            without_effect=about.without_effect,
            notices=notices,
            port=about.port,
            url=about.url,
            pid=about.pid,
            read_only=read_only,
            cannot_resume=cannot_resume,
            next_sequence=now.next_sequence,
            owed=owed,
            services=[_add_spent(one, now.spent) for one in about.services],
            spent=sum(now.spent.values()) if now.spent or about.has_prices else None,
        )


def as_it_is_now(config: Mapping[str, Json], limits: ExperimentLimits, space: Json) -> dict[str, Json]:
    """Return the config with what has been changed since the start."""
    current: dict[str, Json] = {
        "trialConcurrency": limits.concurrency,
        "maxTrialNumber": limits.max_trials,
        "maxExperimentDuration": limits.max_duration_s,
        "maxTrialDuration": limits.max_trial_duration_s,
        "maxCost": limits.max_cost,
        "stopAtValue": limits.stop_at_value,
    }
    changed = {name: value for name, value in current.items() if value != config.get(name)}
    if "searchSpace" in config:
        changed["searchSpace"] = space
    if (limits.max_slots, limits.priority) != (None, None):
        changed["trainingService"] = _with_slots(config.get("trainingService"), limits)
    return {**config, **changed}


def _with_slots(service: Json, limits: ExperimentLimits) -> Json:
    """Return the section of a training service, or of several, with the slots and the priority that hold now."""
    if isinstance(service, list):
        return [_with_slots(one, limits) for one in service]
    if not isinstance(service, dict) or "maxSlots" not in service:
        return service
    most = service["maxSlots"] if limits.max_slots is None else limits.max_slots
    priority = service.get("priority") if limits.priority is None else limits.priority
    # A service whose trials share no slots has no use for a priority.
    return service if most is None else {**service, "maxSlots": most, "priority": priority}


def _add_spent(service: ServiceState, spent: Mapping[str, float]) -> ServiceState:
    return replace(service, spent=spent.get(service.name, None if service.cost is None else 0.0))


async def list_experiments() -> Sequence[Listed]:
    """List all experiments of this machine that the registry knows."""
    entries = await asyncio.to_thread(registry.list_all)
    return [
        Listed(
            id=e.id,
            name=e.name,
            state=e.state,
            port=e.port,
            url=e.url or "",
            pid=e.pid,
            directory=str((e.origin or e).directory),
            platform=e.platform,
            started=e.started,
            ended=e.ended,
        )
        for e in entries
    ]
