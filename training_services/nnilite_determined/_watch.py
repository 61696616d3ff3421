"""Watch one job: what is particular to Determined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from nnilite.records import Exited
from nnilite.service import Handle, JobState, JobStatus
from nnilite.services.job_watch import JobWatch, Patience, SeenJob
from nnilite_determined import _status
from nnilite_determined._api import DeterminedApi
from nnilite_determined._log import DeterminedLog
from nnilite_determined._status import ContainerFacts, Experiment


@dataclass(frozen=True)
class DeterminedPatience(Patience):
    """Times on Determined, in seconds."""

    list_pause_s: float = 2.0
    log_pause_s: float = 2.0
    log_lag_s: float = 10.0
    soft_extra_s: float = 30.0
    queue_pause_s: float = 5.0
    """The job queue is looked at at most once in this time."""


@dataclass(frozen=True)
class DeterminedWatchNeeds:
    """What a watch has from its service."""

    master: str
    queue: Callable[[str], str]
    """Returns Determined's words on the place of a job in the queue, by its id there."""
    paused: set[str]
    """The names of the jobs that a user has paused, which a watch adds to."""


class DeterminedWatch(JobWatch[Experiment]):
    """One job. Lists show the state of its experiment; its containers are asked for when it begins and ends."""

    platform: ClassVar[str] = "Determined"
    log: DeterminedLog

    def __init__(self, api: DeterminedApi, handle: Handle, around: DeterminedWatchNeeds, patience: Patience) -> None:
        self._number = int(handle["id"])
        super().__init__(handle, DeterminedLog(api, self._number), patience)
        self._api = api
        self._around = around
        self._facts = ContainerFacts()
        self.soft_end = partial(api.cancel, self._number)
        self.url = f"{around.master.rstrip('/')}/det/experiments/{self._number}"

    async def fetch(self) -> Experiment:
        return await self._api.experiment(self._number)

    def is_this(self, experiment: Experiment) -> bool:
        return experiment.get("name") == self.name

    def interpret(self, experiment: Experiment) -> SeenJob:
        return _status.seen(experiment, self._around.queue(str(experiment.get("jobId"))), self._facts)

    async def learn(self, experiment: Experiment) -> Experiment:
        if experiment.get("state") not in _status.DELETED and await self.log.locate():
            self._facts = _status.facts_of(await self._api.allocations(self.log.task))
        return experiment

    def knows_enough(self) -> bool:
        return self._facts.started is not None

    async def judged(self, experiment: Experiment) -> JobStatus:
        if experiment.get("state") == _status.PAUSED and not self.ran:
            await self.learn(experiment)  # It may have run since the last look.
        return await super().judged(experiment)

    def taken_away(self, experiment: Experiment, seen: SeenJob) -> JobStatus:
        if experiment.get("state") == _status.PAUSED:
            self._around.paused.add(self.name)
        return _status.taken_away(experiment, self._facts)

    def speaks(self, experiment: Experiment, seen: SeenJob) -> bool:
        has_no_end = seen.state is JobState.CANCELED or experiment.get("state") in _status.DELETED
        return self.ran and not has_no_end and not self._facts.has_no_image

    async def kill(self) -> None:
        await self._api.kill(self._number)

    def end(self, experiment: Experiment, word: Exited | None) -> JobStatus:
        return _status.judge_end(str(experiment.get("state")), word, self._facts)
