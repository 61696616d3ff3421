"""A manager's side of the service of Ray: as ReadingBench, with a service that does not wait long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nnilite.service import ServiceContext
from nnilite.testing import ReadingBench
from nnilite_ray import RayConfig, RayService
from nnilite_ray._watch import RayPatience

QUICK = RayPatience(log_pause_s=0.2, young_s=0.2, gone_s=0.2, usage_pause_s=0.1, comes_back_s=0.0)


class QuickRayService(RayService):
    """Does not wait long between questions."""

    patience = QUICK


def have_patience(monkeypatch: pytest.MonkeyPatch, **times: float) -> None:
    """Let services that are made from now on have these times."""
    monkeypatch.setattr(QuickRayService, "patience", replace(QuickRayService.patience, **times))


class RayBench(ReadingBench):
    """`common` is for the specifications of all jobs; with `report: stdout` they have no way to the receiver."""

    def __init__(
        self, folder: Path, address: str, common: dict[str, Any] | None = None, with_nodes: bool = False, **fields: Any
    ) -> None:
        config = RayConfig(**{"address": address, "nni_manager_ip": "127.0.0.1", **fields})

        def made(context: ServiceContext) -> RayService:
            return QuickRayService("ray", config, context)

        super().__init__(folder, made, with_nodes=with_nodes, **{"linger_s": 1, **(common or {})})
