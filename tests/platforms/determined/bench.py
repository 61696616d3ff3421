"""A manager's side, and the service on this cluster; it takes what the service reads in logs, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnilite.service import ServiceContext
from nnilite.testing import ReadingBench, keeper_zipapp
from nnilite_determined import DeterminedConfig, DeterminedService
from nnilite_determined._watch import DeterminedPatience
from platforms.determined.master import Master


def maker(master: Master, **fields: Any) -> Callable[[ServiceContext], DeterminedService]:
    """Makes a service on this cluster."""
    given = {"master": master.address, "password": master.cluster.password, "nni_manager_ip": "127.0.0.1", **fields}
    return lambda context: QuickDetermined("determined", DeterminedConfig(**given), context)


class QuickDetermined(DeterminedService):
    """Does not wait long between questions, and not long for anything."""

    patience = DeterminedPatience(
        0.0, 0.0, young_s=0.0, gone_s=0.3, log_lag_s=1.0, soft_extra_s=0.5, call_s=1.0, queue_pause_s=0.0
    )


class DeterminedBench(ReadingBench):
    """With keepers that do not wait long."""

    def __init__(self, folder: Path, make: Callable[[ServiceContext], Any], **common: Any) -> None:
        super().__init__(folder, make, **{"linger_s": 1, **common})

    def context(self) -> ServiceContext:
        return replace(super().context(), keeper=keeper_zipapp(with_nodes=self._with_nodes, with_storage=True))
