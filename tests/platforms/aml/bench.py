"""A manager's side, and the service on a workspace: the stand-in's, or the one that NNILITE_TEST_AML names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from nnilite.records import Json
from nnilite.service import Handle, ServiceContext
from nnilite.testing import ReadingBench
from nnilite_aml import AmlConfig, AmlService
from nnilite_aml._watch import AmlPatience
from platforms.aml.login import CLIENT, SECRET, TENANT
from platforms.aml.workspace import GROUP, NAME, SUBSCRIPTION

GIVEN = os.environ.get("NNILITE_TEST_AML", "")
"""SUBSCRIPTION/GROUP/WORKSPACE/COMPUTE of a real workspace; who logs in is found as by any program of Azure's."""
QUICK = AmlPatience(0.1, 0.1, young_s=0.5, gone_s=0.5, log_lag_s=5.0, soft_extra_s=0.0, call_s=1.5)
# The stand-in takes long to start, so that all its tests share one process. Azure's library is warned by its own ones.
MARKS = [
    pytest.mark.process,
    pytest.mark.xdist_group("azure"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def section() -> dict[str, Any]:
    """The fields of the workspace, as in YAML."""
    if GIVEN:
        names = ("subscriptionId", "resourceGroup", "workspaceName", "computeTarget")
        return {"platform": "aml", **dict(zip(names, GIVEN.split("/"), strict=True))}
    place = {
        "subscriptionId": SUBSCRIPTION,
        "resourceGroup": GROUP,
        "workspaceName": NAME,
        "computeTarget": "cpu-cluster",
    }
    return {"platform": "aml", **place, "tenantId": TENANT, "clientId": CLIENT, "clientSecret": SECRET}


def config(**fields: Any) -> AmlConfig:
    if GIVEN:
        names = ("subscription_id", "resource_group", "workspace_name", "compute_target")
        place = {**dict(zip(names, GIVEN.split("/"), strict=True)), "docker_image": "python:3.12-slim"}
        return AmlConfig(**{**place, "nni_manager_ip": "127.0.0.1", **fields})
    place = {
        "subscription_id": SUBSCRIPTION,
        "resource_group": GROUP,
        "workspace_name": NAME,
        "compute_target": "cpu-cluster",
        "tenant_id": TENANT,
        "client_id": CLIENT,
        "client_secret": SECRET,
        "nni_manager_ip": "127.0.0.1",
    }
    return AmlConfig(**{**place, **fields})


class QuickAml(AmlService):
    """Does not wait long between questions. A cancellation reaches the keeper as the engine has the manager tell it."""

    patience = QUICK
    bench: ReadingBench | None = None

    async def cancel(self, handle: Handle) -> None:
        if self.bench is not None and handle["job"] in self.bench.receiver.jobs:
            self.bench.received(str(handle["job"])).cancel = True
        await super().cancel(handle)


class AmlBench(ReadingBench):
    """With keepers that do not wait long. `by_log`: trials cannot reach the manager; `fields`: of the section."""

    def __init__(self, folder: Path, by_log: bool = False, **fields: Any) -> None:
        common: Mapping[str, Json] = {"report": "stdout"} if by_log else {"linger_s": 1}
        super().__init__(folder, self._made(fields), **common)
        self._by_log = by_log
        self.limit_s = 1800.0 if GIVEN else 60.0

    def _made(self, fields: dict[str, Any]) -> Callable[[ServiceContext], QuickAml]:
        def make(context: ServiceContext) -> QuickAml:
            service = QuickAml("aml", config(**fields), context)
            service.bench = self
            return service

        return make

    @property
    def calls_back(self) -> bool:
        return not self._by_log

    def tell(self, word: str) -> str:
        self._meet()
        return super().tell(word)

    def sign(self, name: str) -> Path:
        self._meet()
        return super().sign(name)

    @staticmethod
    def _meet() -> None:
        if GIVEN:
            pytest.skip("trials on Azure do not see the files of this machine")

    def ask_anew(self) -> None:
        """The next question is asked of Azure, and not answered by what it has said just now."""
        self.service._listed = float("-inf")  # type: ignore[attr-defined]
