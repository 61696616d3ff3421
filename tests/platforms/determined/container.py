"""The containers of a trial: processes of this machine, in folders of their own, with Determined's variables."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import processes

_lines = itertools.count(1)


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Container:
    """Runs an entrypoint, and tells each line of its log and its end."""

    def __init__(self, folder: Path, told: Callable[[dict[str, Any]], None], ended: Callable[[int], None]) -> None:
        self.id = str(uuid.uuid4())
        self._folder = folder
        self._told = told
        self._ended = ended
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, entrypoint: Any, files: list[Mapping[str, Any]], variables: Mapping[str, str], place: tuple[int, int]
    ) -> None:
        """`place`: the number of this container, and how many there are. All are this machine."""
        work = self._folder / "run" / "determined" / "workdir"
        info = self._folder / "run" / "determined" / "info"
        info.mkdir(parents=True)
        told = {"container_addrs": ["127.0.0.1"] * place[1], "container_rank": place[0]}
        (info / "rendezvous.json").write_text(json.dumps(told))
        work.mkdir(parents=True)
        for entry in sorted(files, key=lambda one: one["path"]):
            self._put(work / entry["path"], entry)
        words = ["/bin/sh", "-c", entrypoint] if isinstance(entrypoint, str) else list(entrypoint)
        path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
        environment = {"PATH": path, "HOME": str(self._folder), "DET_CONTAINER_ID": self.id, **variables}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        self._process = subprocess.Popen(words, cwd=work, env=environment, start_new_session=True, **pipes)
        readers = [
            threading.Thread(target=self._read, args=(name, getattr(self._process, name)), daemon=True)
            for name in ("stdout", "stderr")
        ]
        for reader in readers:
            reader.start()
        threading.Thread(target=self._watch, args=(self._process, readers), daemon=True).start()

    def terminate(self) -> None:
        """As Docker stops a container: its first process is told."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """As a container dies: all of its processes at once."""
        for pid in processes.with_variable(f"DET_CONTAINER_ID={self.id}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _put(self, path: Path, entry: Mapping[str, Any]) -> None:
        if entry["type"] == 53:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(entry["content"], validate=True))
        path.chmod(entry["mode"] & 0o777)

    def _read(self, stream: str, pipe: Any) -> None:
        with pipe:
            for line in pipe:
                text = line.decode("utf-8", "replace")
                self._told(
                    {
                        "id": str(next(_lines)),
                        "timestamp": now(),
                        "message": f"[{now()}] [{self.id[:8]}] [rank=0] || {text}",
                        "level": "LOG_LEVEL_INFO",
                        "containerId": self.id,
                        "rankId": 0,
                        "log": text,
                        "source": "task",
                        "stdtype": stream,
                    }
                )

    def _watch(self, process: subprocess.Popen[bytes], readers: list[threading.Thread]) -> None:
        code = process.wait()
        self.kill()
        for reader in readers:
            reader.join(10)
        self._ended(code)


class Containers:
    """All containers of one allocation. One that fails ends the others, as Determined's master has it."""

    def __init__(
        self, folder: Path, count: int, told: Callable[[dict[str, Any]], None], ended: Callable[[int], None]
    ) -> None:
        self._ended, self._codes = ended, []
        self._lock = threading.Lock()
        self.all = [Container(folder / str(number), told, self._one_ended) for number in range(count)]

    def start(self, entrypoint: Any, files: list[Mapping[str, Any]], variables: Mapping[str, str]) -> None:
        for number, one in enumerate(self.all):
            one.start(entrypoint, files, variables, (number, len(self.all)))

    def kill(self) -> None:
        for one in self.all:
            one.kill()

    def _one_ended(self, code: int) -> None:
        with self._lock:
            self._codes.append(code)
            over = len(self._codes) == len(self.all)
        if code and not over:
            self.kill()
        if over:
            self._ended(next((each for each in self._codes if each), 0))


def variables(master: str, experiment: Any, allocation: str, token: str) -> dict[str, str]:
    """What Determined tells its containers."""
    config = experiment.config
    given = (config.get("environment") or {}).get("environment_variables") or []
    found = {
        "DET_MASTER": master,
        "DET_CLUSTER_ID": "stand-in",
        "DET_AGENT_ID": "agent-1",
        "DET_ALLOCATION_ID": allocation,
        "DET_TASK_ID": experiment.task,
        "DET_TASK_TYPE": "TRIAL",
        "DET_RESOURCES_TYPE": "docker-container",
        "DET_SLOT_IDS": json.dumps(list(range(experiment.slots))),
        "DET_SESSION_TOKEN": token,
        "DET_EXPERIMENT_ID": str(experiment.number),
        "DET_EXPERIMENT_CONFIG": json.dumps(config),
        "DET_TRIAL_ID": str(experiment.trial),
        "DET_TRIAL_RUN_ID": str(experiment.runs),
        "DET_TRIAL_SEED": "0",
        "DET_HPARAMS": json.dumps(config.get("hyperparameters") or {}),
        "DET_STEPS_COMPLETED": "0",
    }
    latest = config["searcher"].get("source_checkpoint_uuid")
    if latest:
        found["DET_LATEST_CHECKPOINT"] = latest
    return {**found, **dict(one.partition("=")[::2] for one in given)}
