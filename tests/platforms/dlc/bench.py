"""A manager's side, and the service on the stand-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nnilite.records import Json
from nnilite.service import Handle, ServiceContext
from nnilite.services.job_watch import Patience
from nnilite.testing import ReadingBench
from nnilite.units import SecretText
from nnilite_dlc import DlcConfig, DlcService
from platforms.dlc.server import KEY, WORKSPACE, DlcServer

IMAGE = "python:3.12-slim"
QUICK = Patience(0.1, 0.1, young_s=0.5, gone_s=0.5, log_lag_s=3.0, soft_extra_s=0.0, call_s=1.5)


def section(server: DlcServer) -> dict[str, Any]:
    """The fields of the stand-in, as in YAML, but for the key's secret."""
    return {
        "platform": "dlc",
        "endpoint": server.url,
        "region": "cn-hangzhou",
        "workspaceId": WORKSPACE,
        "image": IMAGE,
        "ecsSpec": "ecs.g6.large",
        "accessKeyId": KEY[0],
    }


def config(server: DlcServer, **fields: Any) -> DlcConfig:
    """A section that works."""
    given: dict[str, Any] = {
        "endpoint": server.url,
        "region": "cn-hangzhou",
        "workspace_id": WORKSPACE,
        "image": IMAGE,
        "ecs_spec": "ecs.g6.large",
        "access_key_id": KEY[0],
        "access_key_secret": SecretText(KEY[1]),
        "nni_manager_ip": "127.0.0.1",
    }
    return DlcConfig(**{**given, **fields})


class QuickDlc(DlcService):
    """Does not wait long between questions. A cancellation reaches the keeper as the engine has the manager tell it."""

    patience = QUICK
    settle_s = 2.0
    bench: ReadingBench | None = None

    async def cancel(self, handle: Handle) -> None:
        if self.bench is not None and handle["job"] in self.bench.receiver.jobs:
            self.bench.received(str(handle["job"])).cancel = True
        await super().cancel(handle)


class DlcBench(ReadingBench):
    """With keepers that do not wait long. `by_log`: trials cannot reach the manager; `fields`: of the section."""

    def __init__(self, folder: Path, server: DlcServer, by_log: bool = False, **fields: Any) -> None:
        common: Mapping[str, Json] = {"report": "stdout"} if by_log else {"linger_s": 1}
        super().__init__(folder, self._made(config(server, **fields)), **common)
        self.server = server
        self._by_log = by_log

    def _made(self, given: DlcConfig) -> Callable[[ServiceContext], QuickDlc]:
        def make(context: ServiceContext) -> QuickDlc:
            service = QuickDlc("dlc", given, context)
            service.bench = self
            return service

        return make

    @property
    def calls_back(self) -> bool:
        return not self._by_log

    def ask_anew(self) -> None:
        """The next question is asked of DLC, and not answered by what it has said just now."""
        self.service._listed = float("-inf")  # type: ignore[attr-defined]
