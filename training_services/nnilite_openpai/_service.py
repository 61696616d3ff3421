"""The training service of OpenPAI: one job of protocol v2 for each attempt of a trial.

A job's name is that of the attempt, so it is found by its name alone, and never exists twice. `poll` asks for one list
of all jobs of the experiment. Only single jobs are asked why they wait, where they run and how they ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from nnilite.platform_http import as_config_error
from nnilite.records import Json
from nnilite.service import Handle, Job, ServiceContext
from nnilite.services.callback_address import CallbackAddress
from nnilite.services.delivery import DeliveryCache, MountedStorage, sample_job, variable_names
from nnilite.services.job_watch import Patience
from nnilite.services.node_places import LAUNCHERS
from nnilite.services.storage_service import StorageService
from nnilite_openpai._api import Pai, PaiJob
from nnilite_openpai._checks import check_platform, check_resources
from nnilite_openpai._config import IGNORED, OpenPaiConfig
from nnilite_openpai._convert import encoded, own_secrets, submission, without_secrets
from nnilite_openpai._delivery import announce, choose_source, delivered, find_storage
from nnilite_openpai._role_nodes import place_nodes, spread
from nnilite_openpai._roles import make_roles, reporting_role
from nnilite_openpai._watch import PaiWatch


class OpenPaiService(StorageService[Pai, PaiJob]):
    """The training service `openpai`: a job for each trial, on a cluster of OpenPAI 1.0 or later.

    A handle has in addition "role": the role that stands for it.
    """

    Config = OpenPaiConfig
    config: OpenPaiConfig
    ignores = IGNORED
    launchers = LAUNCHERS
    platform: ClassVar[str] = "OpenPAI"
    # PAI takes 60 list calls a minute of a user, whose experiments may be several.
    patience: ClassVar[Patience] = Patience(list_pause_s=2.0, call_s=15.0)

    ask_pause_s: ClassVar[float] = 10.0
    """The shortest time between two calls on why a job waits."""

    def __init__(self, name: str, config: OpenPaiConfig, context: ServiceContext) -> None:
        config = spread(config, context)
        super().__init__(name, config, context, CallbackAddress(context, config.nni_manager_ip, config.host))
        self._deliveries = DeliveryCache(partial(delivered, config, context), self.job_callback_url)

    # ------------------------------------------------------------ lifecycle

    def connect(self) -> Pai:
        return Pai(self.config, self.patience.call_s)

    async def log_in(self, api: Pai) -> None:
        self._deliveries.forget()
        await check_platform(api, self.config)
        with as_config_error("token" if self.config.token else "password"):
            self.record_jobs(await self.list_jobs(api, frozenset()))

    async def check_trials(self, api: Pai) -> None:
        with as_config_error("token" if self.config.token else "password"):
            await check_resources(api, self.config, make_roles(self.config, self.gpus))

    async def check_size(self) -> None:
        sample = sample_job(self.context, self.gpus)
        if choose_source(self.config, sample.report) != "storage":
            await self._body(sample)

    async def take_over(self, api: Pai) -> None:
        # Their manager may not listen there now, and is announced all the same.
        address = await asyncio.to_thread(self.callback.find)
        await asyncio.to_thread(announce, self.config, self.context, address)

    # ------------------------------------------------------------ submitting

    async def submit(self, job: Job) -> Handle:
        await self.api.submit(job.name, await self._body(job))
        return self.handle(job, role=reporting_role(self.config))

    async def _body(self, job: Job) -> bytes:
        """Return the request for a job. Raises: ConfigError if it is too large, ServiceError, CodeDirError."""
        job = place_nodes(job, self.config)
        delivery = await self._deliveries.prepare(job)
        return encoded(submission(job, self.config, own_secrets(job, self.config, delivery)))

    def describe(self, job: Job) -> Json:
        source = choose_source(self.config, job.report)
        content = submission(place_nodes(job, self.config), self.config, dict.fromkeys(variable_names(source), b""))
        return {
            "request": f"POST {self.config.host}/rest-server/api/v2/jobs",
            "codeFrom": source,
            "job": without_secrets(content),
        }

    # ------------------------------------------------------------ watching

    async def list_jobs(self, api: Pai, wanted: frozenset[str]) -> Mapping[str, PaiJob]:
        return await api.jobs(f"nni-{self.context.experiment}-")

    def watch(self, api: Pai, handle: Handle) -> PaiWatch:
        return PaiWatch(api, handle, self.patience, self.ask_pause_s)

    # ------------------------------------------------------------ files

    def storage(self) -> MountedStorage:
        return find_storage(self.config, self.context.experiment)
