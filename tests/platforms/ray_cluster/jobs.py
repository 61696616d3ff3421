"""The jobs of the stand-in: commands that really run, in the environment that Ray would give them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

_FINAL = ("STOPPED", "SUCCEEDED", "FAILED")
_NAMES = {"entrypoint_num_cpus": "CPU", "entrypoint_num_gpus": "GPU", "entrypoint_memory": "memory"}
_RESOURCES = "resources (CPUs, GPUs, memory, custom resources) to become available."
_MAY_WAIT = f"Job has not started yet. It may be waiting for {_RESOURCES}"
_FAILED = "Job entrypoint command failed with exit code {}, last available logs (truncated to 20,000 chars):\n"
_SAYINGS = {
    "PENDING": f"{_MAY_WAIT} It may be waiting for the runtime environment to be set up.",
    "RUNNING": "Job is currently running.",
    "STOPPED": "Job was intentionally stopped.",
    "SUCCEEDED": "Job finished successfully.",
}
_LIBRARY = Path(__file__).parent / "library"


@dataclass
class FakeNode:
    """A node of the stand-in."""

    name: str
    folder: Path
    resources: dict[str, float]
    alive: bool = True

    def unpacked(self, package: str, data: bytes) -> Path:
        """The folder of a package, which all jobs of the node share."""
        place = self.folder / "working_dir_files" / package.removesuffix(".zip")
        if not place.exists():
            place.mkdir(parents=True)
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                archive.extractall(place)
        return place


@dataclass
class FakeJob:
    """A job of the stand-in."""

    request: dict[str, Any]
    folder: Path
    status: str = "PENDING"
    message: str | None = None
    error_type: str | None = None
    exit_code: int | None = None
    node: FakeNode | None = None
    process: subprocess.Popen[bytes] | None = None
    stop_asked: bool = False
    kill_at: float | None = None
    submitted: float = field(default_factory=time.time)
    ended: float | None = None
    tree: list[psutil.Process] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.request["submission_id"])

    @property
    def over(self) -> bool:
        return self.status in _FINAL

    @property
    def wanted(self) -> dict[str, float]:
        """The resources that it asks for."""
        found = {resource: self.request.get(name) or 0 for name, resource in _NAMES.items()}
        return {**found, **(self.request.get("entrypoint_resources") or {})}

    @property
    def variables(self) -> dict[str, str]:
        return (self.request.get("runtime_env") or {}).get("env_vars") or {}

    def shown(self) -> dict[str, Any]:
        """As the interface tells it."""
        place = f"http://{self.node.name}:52365" if self.node else None
        kept = {name: self.request.get(name) for name in ("entrypoint", "metadata", "runtime_env", "submission_id")}
        return {
            **kept,
            "type": "SUBMISSION",
            "job_id": None,
            "driver_info": None,
            "status": self.status,
            "message": self.message or _SAYINGS.get(self.status),
            "error_type": self.error_type,
            "start_time": int(self.submitted * 1000),
            "end_time": int(self.ended * 1000) if self.ended else None,
            "driver_agent_http_address": place,
            "driver_node_id": f"id-of-{self.node.name}" if self.node else None,
            "driver_exit_code": self.exit_code,
        }

    def start(self, node: FakeNode, package: bytes | None, address: str) -> None:
        """Begin on a node."""
        self.node, self.status = node, "RUNNING"
        directory = self.folder
        if package is not None:
            directory = node.unpacked(self.request["runtime_env"]["working_dir"].removeprefix("gcs://"), package)
        entry = self.request["entrypoint"]
        with self.log.open("a") as log:
            log.write(f"Running entrypoint for job {self.name}: {entry}\n")
            log.flush()
            environment = self._environment(address, node)
            self.process = subprocess.Popen(
                entry, shell=True, start_new_session=True, stdout=log, stderr=log, env=environment, cwd=directory
            )

    def _environment(self, address: str, node: FakeNode) -> dict[str, str]:
        config = {"runtime_env": self.request.get("runtime_env") or {}, "metadata": self.request.get("metadata") or {}}
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "RAY_ADDRESS": address,
            "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config),
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
            "PYTHONPATH": str(_LIBRARY),
            "FAKE_RAY": str(self.folder.parent),
            "TMPDIR": str(node.folder),
            **self.variables,
        }

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def advance(self) -> None:
        """See whether a job that runs has ended."""
        if self.process is None or self.over:
            return
        code = self.process.poll()
        if self.stop_asked:
            self._stop()
        elif code is not None:
            self.exit_code = code
            if code:
                self.end("FAILED", _FAILED.format(code), "JOB_ENTRYPOINT_COMMAND_ERROR")
            else:
                self.end("SUCCEEDED")

    def _stop(self) -> None:
        """SIGTERM to all processes, and SIGKILL after the time that the job's environment says."""
        assert self.process is not None
        if self.kill_at is None:
            self.kill_at = time.monotonic() + int(self.variables.get("RAY_JOB_STOP_WAIT_TIME_S", 3))
            with contextlib.suppress(psutil.NoSuchProcess):
                main = psutil.Process(self.process.pid)
                self.tree = [main, *main.children(recursive=True)]
            self._send(signal.SIGTERM)
        elif time.monotonic() > self.kill_at:
            self._send(signal.SIGKILL)
        self.process.poll()
        if not psutil.wait_procs(self.tree, timeout=0)[1]:
            self.process.wait(60)
            self.end("STOPPED")

    def _send(self, number: int) -> None:
        for process in self.tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def end(self, status: str, message: str | None = None, error_type: str | None = None) -> None:
        self.status, self.message, self.error_type, self.ended = status, message, error_type, time.time()

    def kill(self) -> None:
        """What the watcher of a supervisor does when that has died: it kills the group of the entrypoint."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)
