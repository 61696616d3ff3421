"""Handing out the GPUs of one machine.

read_gpus()                what NVML says of the machine. It blocks, so call it in a thread, as `GpuReader` does
choose(gpus, wanted, ...)  which GPUs a job gets, or NoCapacity with the reason. Pure
use_of(gpus)               how busy they are, for people
environment(indices)       the variables that let the job's programs see those GPUs and no others

A GPU is free for a job if it works, is allowed, has fewer than `max_jobs` jobs of this experiment, and, unless
`use_active` says that it does not matter, no process of other users or programs. A job gets as many whole GPUs as it
wants: it may want all GPUs of the machine, also the only one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnilite.errors import NoCapacity, ServiceError

__all__ = ["Gpu", "GpuReader", "GpuRules", "choose", "environment", "impossible", "read_gpus", "use_of"]


@dataclass(frozen=True)
class Gpu:
    """One GPU as it is now. `index` is NVML's: the order on the PCI bus."""

    index: int
    name: str = ""
    memory_total_mb: int = 0
    memory_used_mb: int = 0
    utilization_percent: int | None = None  # None: the GPU does not report it
    processes: tuple[int, ...] = ()  # process ids, of computing and of drawing programs
    fault: str = ""  # why it cannot be used; "" if it can


@dataclass(frozen=True)
class GpuRules:
    """Which GPUs may be handed out. `allowed=None` allows all."""

    allowed: Collection[int] | None = None
    max_jobs: int = 1  # jobs of this experiment that may share a GPU
    use_active: bool = False  # also hand out GPUs on which programs of others run

    def admits(self, gpu: Gpu) -> bool:
        return self.allowed is None or gpu.index in self.allowed


def choose(
    gpus: Sequence[Gpu],
    wanted: int,
    rules: GpuRules,
    booked: Mapping[str, Sequence[int]],
    own: Callable[[int], bool] = lambda pid: False,
) -> tuple[int, ...]:
    """Return the indices of the GPUs for one more job, sorted: those with the fewest jobs, then the least used ones.

    `booked` maps the names of running jobs to the GPUs they hold; `own(pid)` distinguishes the processes of these jobs
    from those of others. Raises: NoCapacity, saying what is in the way of each GPU.

        >>> choose([Gpu(0), Gpu(1)], 1, GpuRules(), booked={"other": [0]})
        (1,)
    """
    jobs = Counter(index for indices in booked.values() for index in indices)
    admitted = [gpu for gpu in gpus if rules.admits(gpu)]
    obstacles = {gpu.index: _find_obstacle(gpu, rules, jobs[gpu.index], own) for gpu in admitted}
    free = [gpu for gpu in admitted if not obstacles[gpu.index]]
    if len(free) < wanted:
        never = impossible(gpus, wanted, rules)
        raise NoCapacity(never or _explain_wait(wanted, len(free), obstacles, rules))
    free.sort(key=lambda gpu: _rank_gpu(gpu, jobs[gpu.index], own))
    return tuple(sorted(gpu.index for gpu in free[:wanted]))


def impossible(gpus: Sequence[Gpu], wanted: int, rules: GpuRules) -> str | None:
    """Return why `wanted` GPUs are impossible on this machine, or None."""
    missing = sorted(set(rules.allowed or ()) - {gpu.index for gpu in gpus})
    if missing:
        has = f"GPUs {_list(gpu.index for gpu in gpus)}" if gpus else "no GPU"
        return f"gpuIndices names GPU {_list(missing)}, but this machine has {has}"
    admitted = sum(rules.admits(gpu) for gpu in gpus)
    if wanted <= admitted:
        return None
    limit = f", and gpuIndices allows {admitted}" if admitted < len(gpus) else ""
    return f"a trial needs {wanted} GPUs, but this machine has {len(gpus)}{limit}"


def environment(indices: Sequence[int] | None) -> dict[str, str]:
    """Return the variables for a job that got these GPUs.

    None gives no variables at all; an empty sequence hides all GPUs.
    """
    if indices is None:
        return {}
    if not indices:
        return {"CUDA_VISIBLE_DEVICES": ""}
    # without the order CUDA numbers GPUs by speed, NVML by their place on the bus
    return {"CUDA_VISIBLE_DEVICES": _list(indices, ","), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def use_of(gpus: Iterable[Gpu]) -> list[dict[str, Any]]:
    """Return how busy each GPU is, for `Host.details["gpuUse"]`: `percent` (null: unknown) and bytes of memory."""
    return [
        {
            "index": gpu.index,
            "percent": gpu.utilization_percent,
            "memoryUsed": gpu.memory_used_mb * 1024**2,
            "memoryTotal": gpu.memory_total_mb * 1024**2,
        }
        for gpu in gpus
        if not gpu.fault
    ]


def _find_obstacle(gpu: Gpu, rules: GpuRules, jobs: int, own: Callable[[int], bool]) -> str:
    """Return why this GPU is not free, or ""."""
    if gpu.fault:
        return gpu.fault
    if jobs >= rules.max_jobs:
        return "runs a trial" if jobs == 1 else f"runs {jobs} trials"
    others = [pid for pid in gpu.processes if not own(pid)]
    if others and not rules.use_active:
        return f"is used by process {_list(others[:3])}{', ...' if len(others) > 3 else ''}"
    return ""


def _rank_gpu(gpu: Gpu, jobs: int, own: Callable[[int], bool]) -> tuple[float, ...]:
    memory = gpu.memory_used_mb / gpu.memory_total_mb if gpu.memory_total_mb else 0.0
    others = sum(not own(pid) for pid in gpu.processes)
    return (jobs, others, round(memory, 2), gpu.utilization_percent or 0, gpu.index)


def _explain_wait(wanted: int, free: int, obstacles: Mapping[int, str], rules: GpuRules) -> str:
    grouped: dict[str, list[int]] = {}
    for index, obstacle in obstacles.items():
        if obstacle:
            grouped.setdefault(obstacle, []).append(index)
    states = "; ".join(f"GPU {_list(indices)} {obstacle}" for obstacle, indices in grouped.items())
    hint = ""
    if any(obstacle.startswith("is used") for obstacle in grouped):
        hint = " (useActiveGpu: true would share it)"
    elif any(obstacle.startswith("runs") for obstacle in grouped):
        hint = f" (maxTrialNumberPerGpu is {rules.max_jobs})"
    need = "a GPU" if wanted == 1 else f"{wanted} GPUs, and {free} of them are free"
    return f"waits for {need}: {states}{hint}"


def _list(numbers: Iterable[int], separator: str = ", ") -> str:
    return separator.join(map(str, numbers))


def read_gpus() -> list[Gpu]:
    """Ask NVML for all GPUs of this machine. Blocks, at bad times for long.

    Raises: ServiceError if there is no driver or it does not answer. A single broken GPU has a `fault`
    instead.
    """
    try:
        import pynvml
    except ImportError as error:
        raise ServiceError("GPUs cannot be found: install nvidia-ml-py (pip install nvidia-ml-py)") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        raise ServiceError(
            "GPUs cannot be found: this machine has no NVIDIA driver library (libnvidia-ml.so.1)"
        ) from None
    except pynvml.NVMLError as error:
        raise ServiceError(f"GPUs cannot be found: the NVIDIA driver reported {error}") from error
    try:
        return [_read_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise ServiceError(f"GPUs cannot be read: the NVIDIA driver reported {error}") from error
    finally:
        pynvml.nvmlShutdown()


def _read_gpu(nvml: Any, index: int) -> Gpu:
    try:
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, device, None)
        running = [
            *_ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, device, []),
            *_ask(nvml, nvml.nvmlDeviceGetGraphicsRunningProcesses, device, []),
        ]
        rates = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, device, None)
        name = nvml.nvmlDeviceGetName(device)
    except nvml.NVMLError as error:  # fallen off the bus, in a reset, or not ours to use
        return Gpu(index, fault=f"cannot be used: {error}")
    return Gpu(
        index,
        name,
        memory.total // 1024**2 if memory else 0,
        memory.used // 1024**2 if memory else 0,
        None if rates is None else rates.gpu,
        tuple(sorted({process.pid for process in running})),
    )


def _ask(nvml: Any, question: Callable[[Any], Any], device: Any, otherwise: Any) -> Any:
    """Return a GPU's answer, or `otherwise` if it does not support the question (MIG, vGPU, shared memory)."""
    try:
        return question(device)
    except nvml.NVMLError_NotSupported:
        return otherwise


class GpuReader:
    """Reads GPUs in a thread of its own, apart from the event loop; a hanging driver may block it.

    There is never more than one such thread; while it hangs, callers wait `timeout_s` once, then get their error at
    once. A reading is valid for `fresh_s` seconds.
    """

    def __init__(
        self, read: Callable[[], list[Gpu]] = read_gpus, *, fresh_s: float = 1.0, timeout_s: float = 5.0
    ) -> None:
        self._read = read
        self._fresh_s = fresh_s
        self._timeout_s = timeout_s
        self._pending: asyncio.Future[list[Gpu]] | None = None
        self._began_s = self._read_s = -float("inf")
        self._gpus: list[Gpu] = []

    async def gpus(self) -> list[Gpu]:
        """Return the GPUs, as they were a second ago at most. Raises: ServiceError, also if the driver is silent."""
        now_s = time.monotonic()
        if now_s - self._read_s < self._fresh_s:
            return self._gpus
        if self._pending is None:
            self._pending, self._began_s = self._start(), now_s
        pending = self._pending  # shared by concurrent callers
        left_s = max(self._began_s + self._timeout_s - now_s, 0.0)
        await asyncio.wait([pending], timeout=left_s)
        if not pending.done():
            raise ServiceError(
                f"the NVIDIA driver has not answered for {self._timeout_s:g} s; check whether nvidia-smi answers"
            )
        if self._pending is pending:
            self._pending = None
        self._gpus, self._read_s = pending.result(), now_s
        return self._gpus

    def _start(self) -> asyncio.Future[list[Gpu]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Gpu]] = loop.create_future()

        def settle(gpus: list[Gpu], error: ServiceError | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(gpus)
            else:
                answer.set_exception(error)

        def work() -> None:
            gpus: list[Gpu] = []
            error: ServiceError | None = ServiceError("the GPUs could not be read; see the log")
            try:
                gpus, error = self._read(), None
            except ServiceError as failure:
                error = failure
            finally:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(settle, gpus, error)

        threading.Thread(target=work, name="nvml", daemon=True).start()
        return answer
