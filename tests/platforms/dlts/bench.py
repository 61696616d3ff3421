"""A manager's side of the service of DLTS: as ServiceBench, with what the service reads from logs taken in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nnilite.service import Handle, ServiceContext, TrainingService
from nnilite.services.job_watch import Patience
from nnilite.testing import ReadingBench
from nnilite_dlts import DltsConfig, DltsService
from platforms.dlts.cluster import EMAIL, TEAM
from platforms.dlts.dashboard import PASSWORD, Dashboard

IMAGE = "python:3.11"


def config_of(dashboard: Dashboard, **fields: Any) -> DltsConfig:
    """A section that works."""
    given = {"team": TEAM, "email": EMAIL, "password": PASSWORD, "image": IMAGE, "nni_manager_ip": "127.0.0.1"}
    return DltsConfig(**{"dashboard": dashboard.url + "/", **given, **fields})


class DltsBench(ReadingBench):
    """`common` is for the specifications of all jobs; with `report: stdout` they have no way to the receiver."""

    def __init__(self, folder: Path, dashboard: Dashboard, common: dict[str, Any] | None = None, **fields: Any) -> None:
        super().__init__(folder, self._making(config_of(dashboard, **fields)), **(common or {}))
        self.dashboard = dashboard

    def _making(self, config: DltsConfig) -> Callable[[ServiceContext], TrainingService]:
        return lambda context: QuickDlts("dlts", config, context, self._tell_cancel)

    def _tell_cancel(self, name: str) -> None:
        """The manager's answers to a keeper tell of a cancellation, too: nothing else can tell the trial softly."""
        if name in self.receiver.jobs:
            self.receiver.jobs[name].cancel = True


class QuickDlts(DltsService):
    """Does not wait long between questions, beside a manager that does its part of canceling."""

    patience = Patience(0.0, 0.0, young_s=0.0, gone_s=0.3, log_lag_s=3.0, soft_extra_s=0.0, call_s=0.3)

    def __init__(self, name: str, config: Any, context: ServiceContext, tell: Callable[[str], None]) -> None:
        super().__init__(name, config, context)
        self._tell = tell

    async def cancel(self, handle: Handle) -> None:
        self._tell(str(handle["job"]))
        await super().cancel(handle)
