"""Which job has which GPUs of this machine, and whose processes run on them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from nnilite.errors import ConfigError, ServiceError, describe_os_error
from nnilite.services.gpu import Gpu, GpuReader, GpuRules, choose, impossible
from nnilite.services.section_fields import GPU_PLACE
from nnilite.services.worker_side import open_regular, write_private
from nnilite_local._config import LocalConfig

log = logging.getLogger(__name__)

_GLANCE_EVERY_S = 10.0
_CURE = "remove it to run trials without assigned GPUs, or run them on a machine that has enough"


def make_gpu_rules(config: LocalConfig, environment: Mapping[str, str] = os.environ) -> GpuRules:
    """Return what the config allows; if it names no GPUs, those that this process itself may see."""
    allowed = config.gpu_indices
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if allowed is None and visible is not None:
        parts = [part.strip() for part in visible.split(",") if part.strip()]
        if all(part.isdecimal() for part in parts):
            allowed = [int(part) for part in parts]
    return GpuRules(allowed, config.max_trial_number_per_gpu, bool(config.use_active_gpu))


class GpuAllocator:
    """Books GPUs for jobs, in memory and in a file, so that a manager that comes back knows them at once."""

    def __init__(self, experiment: str, rules: GpuRules, place: Path, reader: GpuReader | None = None) -> None:
        self._bookings: dict[str, tuple[Path, tuple[int, ...]]] = {}  # by job: its folder, its GPUs
        self._rules = rules
        self._reader = reader or GpuReader()
        self._experiment = experiment
        self._place = place
        self._own: set[int] = set()
        self._seen: list[Gpu] = []
        self._glanced_s = -float("inf")
        self._glance: asyncio.Task[None] | None = None

    @property
    def booked(self) -> dict[str, tuple[int, ...]]:
        """The GPUs of each job that has some."""
        return {job: gpus for job, (_, gpus) in self._bookings.items()}

    @property
    def seen(self) -> list[Gpu]:
        """The GPUs as they were a few seconds ago, as long as a job has some; else none."""
        return self._seen if self._bookings else []

    def glance(self) -> None:
        """Read the GPUs again in the background, at most once in ten seconds, and only while a job has some."""
        now_s = time.monotonic()
        idle = self._glance is None or self._glance.done()
        if self._bookings and idle and now_s - self._glanced_s >= _GLANCE_EVERY_S:
            self._glanced_s = now_s
            self._glance = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        try:
            self._seen = await self._reader.gpus()
        except ServiceError as error:
            self._seen = []
            log.debug("cannot find out how busy the GPUs are: %s", error)

    def close(self) -> None:
        if self._glance is not None:
            self._glance.cancel()

    async def check(self, wanted: int, concurrency: object) -> str:
        """Check that this machine can ever provide `wanted` GPUs; return a note if they allow fewer trials at once.

        Raises: ConfigError.
        """
        try:
            gpus = await self._reader.gpus()
        except ServiceError as error:
            raise ConfigError(f"is {wanted}, but {error}; {_CURE}", GPU_PLACE) from error
        reason = impossible(gpus, wanted, self._rules)
        if reason:
            raise ConfigError(f"is {wanted}, but {reason}; {_CURE}", GPU_PLACE)
        has = sum(map(self._rules.admits, gpus))
        at_once = has * self._rules.max_jobs // wanted
        if not isinstance(concurrency, int) or at_once >= concurrency:
            return ""
        return (
            f"trialConcurrency is {concurrency}, but the GPUs are enough for {at_once} at once: "
            f"a trial needs {wanted} of {has}"
        )

    async def book(self, job: str, directory: Path, wanted: int) -> tuple[int, ...]:
        """Book GPUs for one more job. Raises: NoCapacity, ServiceError."""
        gpus = await self._reader.gpus()
        self._know(gpus)
        chosen = choose(gpus, wanted, self._rules, self.booked, self._own.__contains__)
        self.rebook(job, directory, chosen)
        return chosen

    def rebook(self, job: str, directory: Path, gpus: object) -> None:
        """Note that a job has these GPUs. Raises: ServiceError if the note cannot be written, and then it has none."""
        if isinstance(gpus, (list, tuple)) and gpus:
            self._save({**self._bookings, job: (directory, tuple(gpus))})

    def free(self, job: str) -> None:
        """Note that the job no longer has GPUs."""
        if self._bookings.pop(job, None) is None:
            return
        try:
            self._save(self._bookings)
        # A later manager asks the job's folder whether it still holds them.
        except ServiceError as error:
            log.warning("%s", error)

    def restore(self, holds: Callable[[Path], bool]) -> None:
        """Take over the bookings of an earlier manager, and drop those of jobs that no longer hold theirs.

        Raises: ServiceError if they cannot be read now.
        """
        for job, (directory, gpus) in {**self._saved(), **self._bookings}.items():
            self._bookings[job] = (directory, gpus)
            if not holds(directory):
                self.free(job)

    def _saved(self) -> dict[str, tuple[Path, tuple[int, ...]]]:
        try:
            with open_regular(str(self._place)) as file:
                saved = json.load(file)
            return {job: (_check_absolute(directory), _check_indices(gpus)) for job, (directory, gpus) in saved.items()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ServiceError(f"{self._place} cannot be read now: {describe_os_error(error)}") from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            log.warning("ignored the damaged bookings in %s: %s", self._place, error)
            return {}

    def _save(self, bookings: dict[str, tuple[Path, tuple[int, ...]]]) -> None:
        text = json.dumps({job: [str(directory), gpus] for job, (directory, gpus) in bookings.items()})
        try:
            write_private(str(self._place), text)
        except OSError as error:
            raise ServiceError(f"{self._place} cannot be written: {describe_os_error(error)}") from error
        self._bookings = bookings

    def _know(self, gpus: list[Gpu]) -> None:
        """Find out which processes belong to this experiment. One that has just ended may still be listed."""
        seen = {pid for gpu in gpus for pid in gpu.processes}
        self._own = {pid for pid in seen if self._is_own(pid)}

    def _is_own(self, pid: int) -> bool:
        import psutil  # imported late: machines without GPUs do not need it

        try:
            return psutil.Process(pid).environ().get("NNI_EXP_ID") == self._experiment
        except psutil.NoSuchProcess:  # includes zombies
            return pid in self._own
        except psutil.Error:
            return False


def _check_absolute(directory: object) -> Path:
    if not isinstance(directory, str) or not directory.startswith("/") or "\0" in directory:
        raise ValueError(f"{directory!r:.60} is not a folder")
    os.fsencode(directory)  # a lone surrogate is in no name
    return Path(directory)


def _check_indices(gpus: object) -> tuple[int, ...]:
    if not isinstance(gpus, list) or not all(type(index) is int and index >= 0 for index in gpus):
        raise ValueError(f"{gpus!r:.60} are not GPUs")
    return tuple(gpus)
