"""The service in its surroundings, on the stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnilite.service import Handle, ServiceContext
from nnilite.services.job_watch import Patience
from nnilite.testing import ReadingBench, ServiceBench
from nnilite_openpai import OpenPaiConfig, OpenPaiService
from platforms.pai.server import FakePai

QUICK = Patience(0.1, 0.1, young_s=0.5, gone_s=0.5, log_lag_s=0.0, soft_extra_s=0.0, call_s=0.3)


class QuickService(OpenPaiService):
    """Does not wait long between questions. A cancellation reaches the keeper as the engine has the manager tell it."""

    patience = QUICK
    ask_pause_s = 0.2
    bench: ServiceBench | None = None

    async def cancel(self, handle: Handle) -> None:
        if self.bench is not None and handle["job"] in self.bench.receiver.jobs:
            self.bench.received(str(handle["job"])).cancel = True
        await super().cancel(handle)


def config_for(pai: FakePai, **fields: Any) -> OpenPaiConfig:
    login: Mapping[str, Any] = {} if "password" in fields else {"token": pai.token}
    given = {"host": pai.url, "username": pai.user, "nni_manager_ip": "127.0.0.1", **login, **fields}
    return OpenPaiConfig(**given)


def bench_on(pai: FakePai, folder: Path, **fields: Any) -> ReadingBench:
    """Not open yet, with keepers that do not wait long. `fields`: of the service's section."""

    def made(context: ServiceContext) -> QuickService:
        service = QuickService("openpai", config_for(pai, **fields), context)
        service.bench = bench
        return service

    bench = ReadingBench(folder, made, linger_s=1)
    return bench
