"""The GPUs of this worker, and which of them the next trial would get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from nnilite.errors import NoCapacity, ServiceError
from nnilite.services.gpu import Gpu, GpuReader, GpuRules, choose


@dataclass
class WorkerGpus:
    """Reads the GPUs for each choice."""

    rules: GpuRules
    reader: GpuReader = field(default_factory=GpuReader)
    count: int = 0  # that may be handed out; 0 where there is no driver
    trouble: str = ""

    async def look(self) -> Sequence[Gpu]:
        """Return the GPUs as they are now; none where there is no driver, or it does not answer."""
        try:
            gpus = await self.reader.gpus()
        except ServiceError as error:
            self.count, self.trouble = 0, str(error)
            return ()
        self.count, self.trouble = sum(self.rules.admits(gpu) and not gpu.fault for gpu in gpus), ""
        return gpus

    async def choose(self, wanted: int, booked: Mapping[str, Sequence[int]]) -> tuple[int, ...] | None:
        """Return the GPUs for a trial that needs this many; None if they are not free."""
        try:
            return choose(await self.look(), wanted, self.rules, booked, _Own(set(booked)))
        except NoCapacity:
            return None


class _Own:
    """Distinguishes the processes of this worker's trials from others, by their environment."""

    def __init__(self, jobs: set[str]) -> None:
        self._jobs = jobs

    def __call__(self, pid: int) -> bool:
        try:
            return psutil.Process(pid).environ().get("NNILITE_JOB") in self._jobs
        except (psutil.Error, OSError):
            return False
