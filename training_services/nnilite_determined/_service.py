"""Each attempt of a trial is an experiment on Determined, with one trial and the `single` searcher.

A handle is {"job": name, "id": the experiment's number there, "report": how it reports, "soft_s": how long its trial
gets to end}. One listing, by a label, returns the states of all jobs; a job is asked for by itself only when it starts
and when it ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from nnilite.errors import ConfigError, Conflict, NotFound, ServiceError
from nnilite.platform_http import Missing, Outage, Problem, as_config_error
from nnilite.records import Json
from nnilite.service import Handle, Job, ServiceContext
from nnilite.services.batch_service import BatchService
from nnilite.services.callback_address import CallbackAddress
from nnilite.services.delivery import DeliveryCache
from nnilite.services.node_places import LAUNCHERS
from nnilite.units import HIDDEN
from nnilite_determined import _checks
from nnilite_determined._api import DeterminedApi
from nnilite_determined._config import IGNORED, DeterminedConfig
from nnilite_determined._context import delivered, hide_contents, make_model_definition, sample
from nnilite_determined._convert import PAUSED_LABEL, expconf, label, request, slots
from nnilite_determined._slot_nodes import check_nodes, place_nodes
from nnilite_determined._status import DELETED, PAUSED, Experiment, in_queue
from nnilite_determined._watch import DeterminedPatience, DeterminedWatch, DeterminedWatchNeeds

log = logging.getLogger(__name__)


class DeterminedService(BatchService[DeterminedApi, Experiment]):
    """Experiments of one trial each, on a Determined AI cluster."""

    Config = DeterminedConfig
    config: DeterminedConfig
    ignores = IGNORED
    launchers = LAUNCHERS
    platform: ClassVar[str] = "Determined"
    patience: ClassVar[DeterminedPatience] = DeterminedPatience()

    def __init__(self, name: str, config: DeterminedConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context, CallbackAddress(context, config.nni_manager_ip, config.master))
        check_nodes(config, context, self.gpus)
        self._label = label(context.experiment, name)
        self._deliveries = DeliveryCache(partial(delivered, config, context), self.job_callback_url)
        self._numbers: dict[str, int] = {}  # ids of Determined's experiments by job name
        self._paused: set[str] = set()  # names of jobs that a user has paused on Determined
        self._is_certain = True  # False: a job may be there whose number was never received
        self._queue: tuple[float, Mapping[str, str]] = (float("-inf"), {})

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        self._deliveries.forget()
        # Code that is too large for Determined is refused before anything is sent.
        report = "stdout" if self.context.reports_by_log else "rest"
        await asyncio.to_thread(delivered, self.config, self.context, report, "")
        await super().open()

    def connect(self) -> DeterminedApi:
        return DeterminedApi(self.config, self.patience.call_s)

    async def log_in(self, api: DeterminedApi) -> None:
        with as_config_error("token" if self.config.password is None else "password"):
            await api.user()

    async def check_trials(self, api: DeterminedApi) -> None:
        spec: dict[str, Json] = {"distributed": self.context.defaults.get("distributed")}
        job = Job("nni-sample", self.context.experiment, "sample", 0, 0, spec, self.gpus)
        body = request(expconf(job, self.name, self.config), [])
        await _checks.check_trials(api, self.config, slots(job, self.config), body)

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        if not self._is_certain:
            await self.jobs(at_once=True)
        if job.name not in self._numbers:
            body = await self._body(job)
            try:
                made = await self.api.submit(body)
            except Outage:
                self._is_certain = False  # Determined may have accepted the job nevertheless.
                raise
            self._numbers[job.name] = _number(made)
        soft_s = float(job.spec.get("grace_s") or 0) + self.patience.soft_extra_s
        return self.handle(job, id=self._numbers[job.name], soft_s=soft_s)

    async def _body(self, job: Job) -> Json:
        before = f"{job.name.rpartition('-')[0]}-{job.attempt - 1}"
        checkpoint = await self._find_latest_checkpoint(self._numbers.get(before))
        conf = expconf(job, self.name, self.config, checkpoint)
        files = await asyncio.to_thread(make_model_definition, place_nodes(job), await self._deliveries.prepare(job))
        return request(conf, files, activate=before not in self._paused)

    async def _find_latest_checkpoint(self, number: int | None) -> str:
        """Return the checkpoint that Determined's own library saved in the attempt before, "" if there is none."""
        if number is None:
            return ""
        try:
            trials = await self.api.trials(number)
            found = await self.api.checkpoints(int(trials[-1]["id"])) if trials else []
        except Missing:
            return ""
        newest = max(found, key=lambda one: str(one.get("reportTime") or ""), default={})
        return str(newest.get("uuid") or "")

    def describe(self, job: Job) -> Json:
        conf = expconf(job, self.name, self.config)
        stored = conf.get("checkpoint_storage")
        if isinstance(stored, dict) and "secret_key" in stored:
            conf["checkpoint_storage"] = {**stored, "secret_key": HIDDEN}
        files = hide_contents(make_model_definition(job, sample(self.config)))
        body = {**request(conf, files), "config": conf}
        return {"name": job.name, "request": f"POST {self.config.master}/api/v1/experiments", "body": body}

    # ------------------------------------------------------------ watching

    async def list_jobs(self, api: DeterminedApi, wanted: frozenset[str]) -> Mapping[str, Experiment]:
        experiments = await api.experiments({"labels": self._label})
        self._numbers |= {str(one.get("name")): _number(one) for one in experiments}
        self._paused |= {str(one.get("name")) for one in experiments if PAUSED_LABEL in _labels(one)}
        self._is_certain = True
        return {str(_number(one)): one for one in experiments}

    async def listed(self, handles: Sequence[Handle], jobs: Mapping[str, Experiment]) -> None:
        states = [jobs.get(str(handle["id"]), {}).get("state") for handle in handles]
        if "STATE_QUEUED" in states and time.monotonic() - self._queue[0] >= self.patience.queue_pause_s:
            known: Mapping[str, str] = {}
            try:
                known = {str(one.get("jobId")): in_queue(one) for one in await self.api.queue()}
            except Problem as problem:
                log.debug("cannot look at the job queue: %s", problem)
            self._queue = (time.monotonic(), known)

    def watch(self, api: DeterminedApi, handle: Handle) -> DeterminedWatch:
        around = DeterminedWatchNeeds(self.config.master, lambda job: self._queue[1].get(job, ""), self._paused)
        return DeterminedWatch(api, handle, around, self.patience)

    # ------------------------------------------------------------ the end

    async def remove(self, handle: Handle) -> None:
        """End what still runs or waits, and leave the experiment there as the section says."""
        watch = self.watched(handle)
        experiment = await self._found(watch)
        if experiment is not None and experiment.get("state") == PAUSED and PAUSED_LABEL not in _labels(experiment):
            self._paused.add(watch.name)
            await self.api.set_labels(_number(experiment), [*_labels(experiment), PAUSED_LABEL])
        await super().remove(handle)
        experiment = await self._found(watch)
        if experiment is not None:
            await self._leave(experiment)

    async def _found(self, watch: DeterminedWatch) -> Experiment | None:
        """Return the experiment of a job; None if it is gone."""
        try:
            found = await watch.fetch()
        except NotFound:
            return None
        return found if watch.is_this(found) and found.get("state") not in DELETED else None

    async def _leave(self, experiment: Experiment) -> None:
        wish, number = self.config.when_finished, _number(experiment)
        try:
            if wish == "delete":
                await self.api.delete(number)
            elif wish == "archive" and not experiment.get("archived"):
                await self.api.archive(number)
        except NotFound:
            return
        except (ConfigError, Conflict) as problem:
            log.warning("cannot %s experiment %s on Determined: %s", wish, number, problem)


def _labels(experiment: Experiment) -> list[Any]:
    labels = experiment.get("labels")
    return labels if isinstance(labels, list) else []


def _number(experiment: Experiment) -> int:
    """Return an experiment's number. Raises: ServiceError for an experiment without one."""
    number = experiment.get("id")
    if not isinstance(number, int):
        raise ServiceError(f"Determined answered with an experiment without a number: {str(experiment)[:200]}")
    return number
