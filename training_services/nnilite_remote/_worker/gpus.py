"""The GPUs of this machine, from the driver's own library, since no package may be required."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from nnilite_remote._worker.processes import WorkerRefusal, find_experiment


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]


class _ProcessNow(ctypes.Structure):
    _fields_ = [*_Process._fields_, ("instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class Gpus:
    """NVML, without any package: the driver's own library."""

    _INSUFFICIENT = 7

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: Any = None

    def read(self, experiment: str) -> list[dict[str, Any]]:
        """Return all GPUs, each with the processes on it. Raises: WorkerRefusal."""
        if not self._lock.acquire(timeout=0.05):
            raise WorkerRefusal("the NVIDIA driver does not answer; see whether nvidia-smi does")
        try:
            if self._library is None:
                self._library = self._load()
            count = ctypes.c_uint()
            self._must(self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)))
            return [self._describe_gpu(index, experiment) for index in range(count.value)]
        finally:
            self._lock.release()

    def _load(self) -> Any:
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise WorkerRefusal("has no NVIDIA driver library (libnvidia-ml.so.1)") from None
        library.nvmlErrorString.restype = ctypes.c_char_p
        self._library = library
        try:
            self._must(library.nvmlInit_v2())
        except WorkerRefusal:
            self._library = None
            raise
        return library

    def _must(self, code: int) -> None:
        if code:
            library, self._library = self._library, None
            raise WorkerRefusal("the NVIDIA driver says %s" % library.nvmlErrorString(code).decode("ascii", "replace"))

    def _describe_gpu(self, index: int, experiment: str) -> dict[str, Any]:
        library, device, name = self._library, ctypes.c_void_p(), ctypes.create_string_buffer(96)
        memory, rates = _Memory(), _Rates()
        code = library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
        code = code or library.nvmlDeviceGetName(device, name, len(name))
        if code:
            text = library.nvmlErrorString(code).decode("ascii", "replace")
            return {"index": index, "fault": "cannot be used: %s" % text}
        is_known = not library.nvmlDeviceGetUtilizationRates(device, ctypes.byref(rates))
        if library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)):
            memory = _Memory()
        pids = sorted(set(self._processes(device, "Compute") + self._processes(device, "Graphics")))
        return {
            "index": index,
            "name": name.value.decode("utf-8", "replace"),
            "memory_total_mb": memory.total // 1024**2,
            "memory_used_mb": memory.used // 1024**2,
            "utilization_percent": rates.gpu if is_known else None,
            "processes": pids,
            "own": [pid for pid in pids if find_experiment(pid) == experiment],
        }

    def _processes(self, device: ctypes.c_void_p, kind: str) -> list[int]:
        for version, layout in (("_v3", _ProcessNow), ("_v2", _ProcessNow), ("", _Process)):
            ask = getattr(self._library, "nvmlDeviceGet%sRunningProcesses%s" % (kind, version), None)
            if ask is not None:
                return self._ask(ask, device, layout)
        return []

    def _ask(self, ask: Any, device: ctypes.c_void_p, layout: Any) -> list[int]:
        count = ctypes.c_uint(0)
        code = ask(device, ctypes.byref(count), None)
        while code == self._INSUFFICIENT:
            count.value += 8  # more may have come meanwhile
            found = (layout * count.value)()
            code = ask(device, ctypes.byref(count), found)
            if not code:
                return [found[k].pid for k in range(count.value)]
        return []
