"""A running experiment, as the REST interface sees it: what the engine and its surroundings know of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnilite._answers.backend import Listed, Profile, ServiceState, TrialUsage, Waiting
from nnilite._answers.changes import Subscription
from nnilite._engine.engine import Engine
from nnilite._keeper.attempt_kill import describe_stop
from nnilite._manager.disk_reserve import DiskReserve
from nnilite._manager.keeper_callbacks import KeeperCallbacks
from nnilite._manager.manager_control import ManagerControl
from nnilite._manager.manager_parts import ManagerParts
from nnilite._manager.usage_answers import show_uses
from nnilite._manager.worker_files import WorkerFiles
from nnilite._store.reader import Reader
from nnilite._store.tables import BulkReader
from nnilite._views.experiment_facts import ExperimentFacts, ExperimentProgress
from nnilite._views.profile_maker import ProfileMaker, list_experiments
from nnilite.records import ExperimentState, TrialState


class Manager:
    """Implements `nnilite._answers.backend.Backend` for a running experiment."""

    read_only = False

    def __init__(self, about: ExperimentFacts, parts: ManagerParts, reader: Reader, token: str) -> None:
        self._parts = parts
        self.profiles = ProfileMaker(about, reader)
        self.token = token
        self.changes = parts.publisher.changes
        self.results = reader
        self.bulk = BulkReader(reader, about.objectives)
        self.files = WorkerFiles(about.directory, reader, parts.service)
        self.reserve = DiskReserve(about.directory)
        self.control = ManagerControl(parts, self.profiles, reader, self.reserve)
        self.callbacks = KeeperCallbacks(parts.engine, parts.jobs)

    @property
    def experiment_id(self) -> str:
        return self.profiles.about.id

    @property
    def engine(self) -> Engine:
        return self._parts.engine

    def progress(self) -> ExperimentProgress:
        rules = self.engine.rules
        # Output that cannot be written does not keep a stop from its end.
        stopping = rules.state is ExperimentState.STOPPING
        trouble = self.engine.commits_held_up if stopping else self.engine.trouble
        spent = rules.spent(self.engine.now())
        shown = replace(self._parts.publisher.progress, duration_s=rules.duration_s, spent=spent)
        if trouble:
            return replace(shown, reason=f"paused: {trouble}")
        if shown.state is not ExperimentState.RUNNING:
            return shown
        slow = self.engine.slowness.reason(lambda: describe_stop(self._parts.tuner.pid))
        return replace(shown, reason=slow) if slow else shown

    async def profile(self) -> Profile:
        base = await self.profiles.make(self.progress())
        reasons: dict[str, int] = {}
        for live in self.engine.rules.live.values():
            if live.trial.state is TrialState.WAITING:
                reasons[live.trial.reason] = reasons.get(live.trial.reason, 0) + 1
        return replace(
            base,
            hosts=self._parts.service.hosts(),
            tuner_choice=self._parts.tuner.choice,
            services=self._services(base.services),
            waiting=[Waiting(reason, count) for reason, count in sorted(reasons.items())],
            revision=self._parts.store.revision,
        )

    def _services(self, known: Sequence[ServiceState]) -> list[ServiceState]:
        """Return the services with what they are doing now."""
        placed = [live for live in self.engine.rules.live.values() if live.is_placed and live.attempt is not None]
        trials = Counter(live.attempt.service for live in placed if live.attempt is not None)
        aside = self.engine.caller.choice.aside()
        if self.engine.caller.trouble:
            aside = dict.fromkeys((one.name for one in known), self.engine.caller.trouble) | aside
        return [
            replace(
                one,
                state="aside" if one.name in aside else "up",
                reason=aside.get(one.name, ""),
                trials=trials[one.name],
            )
            for one in known
        ]

    async def uses(self) -> Mapping[str, TrialUsage]:
        known = self.engine.uses.list_current(self.engine.now())
        return show_uses(known, self.engine.rules.live, self._parts.service.hosts()) if known else {}

    async def others(self) -> Sequence[Listed]:
        return await list_experiments()

    def subscribe(self) -> Subscription:
        return self.changes.subscribe()
