"""A manager's side of the service of Ray: as ReadingBench, with a service that does not wait long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnilite.service import ServiceContext
from nnilite.testing import ReadingBench
from nnilite_ray import RayConfig, RayService


class QuickRayService(RayService):
    """Does not wait long between questions."""

    usage_pause_s = 0.1
    log_pause_s = 0.2
    comes_back_s = 0.0


class RayBench(ReadingBench):
    """`common` is for the specifications of all jobs; with `report: stdout` they have no way to the receiver."""

    def __init__(self, folder: Path, address: str, common: dict[str, Any] | None = None, **fields: Any) -> None:
        config = RayConfig(**{"address": address, "nni_manager_ip": "127.0.0.1", **fields})

        def made(context: ServiceContext) -> RayService:
            return QuickRayService("ray", config, context)

        super().__init__(folder, made, **{"linger_s": 1, **(common or {})})
