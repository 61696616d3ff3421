"""Puts keeper and code on a volume that this machine does not mount, through the API server and a pod that mounts it.

The pod sleeps, a command in it (`kubectl exec` does the same) reads the files from its standard input, and then the pod
is deleted. Files that exist there already, by size and hash, are not sent again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.records import Json
from nnilite.services.bootstrap import python_command
from nnilite.services.first_seen import FirstSeen
from nnilite_kubernetes import _receive
from nnilite_kubernetes._api import PODS, Cluster
from nnilite_kubernetes._exec import ExecError, Execution
from nnilite_kubernetes._manifest import CODE_CONTAINER
from nnilite_kubernetes._status import explain_pod_wait, judge_pod_end

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
_SLEEP_S = 3600  # a manager that dies here leaves the pod for so long

SLEEP = ["sleep", str(_SLEEP_S)]


class CodePod:
    """The pod of one experiment. `patience_s`: how long it may fail to pull its image, or wait for a node.

    `seen` remembers since when it does, from one try to the next.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, manifest: Json, patience_s: Mapping[str, float], seen: FirstSeen
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._manifest = manifest
        self._name = str(manifest["metadata"]["name"])
        self._patience_s = patience_s
        self._seen = seen

    def put(self, folder: str, files: Mapping[str, tuple[Path, str]]) -> None:
        """Put files there, with their names and hashes. Raises: NoCapacity while the pod waits, or a refusal."""
        self._await_start()
        command = python_command(Path(_receive.__file__).read_text("ascii"), folder)
        try:
            execution = self._cluster.execute(self._namespace, self._name, CODE_CONTAINER, command)
            try:
                _send(execution, files)
            finally:
                execution.close()
        except ExecError as error:
            if error.status in (401, 403):
                raise ConfigError(f"the pod {self._name} cannot be given the code: {error}") from error
            raise ServiceError(f"the pod {self._name} did not accept the code: {error}") from error
        self.delete()

    def delete(self) -> None:
        """Delete the pod. Raises: ApiError."""
        self._cluster.delete(PODS, self._namespace, self._name)

    def _await_start(self) -> None:
        pod = self._cluster.create(PODS, self._namespace, self._manifest)
        end = judge_pod_end(pod, CODE_CONTAINER)
        if end is not None:
            self.delete()
            raise ServiceError(f"the pod {self._name}, which is to receive the code, has ended: {end.reason}")
        status = pod.get("status") or {}
        if status.get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp"):
            return
        wait = explain_pod_wait(pod)
        reason = wait.reason if wait else "it is being started"
        stuck = f"{wait.stuck} since {wait.since}" if wait and wait.stuck in self._patience_s else ""
        if wait and stuck and self._seen.lasts_s(stuck) > self._patience_s[wait.stuck]:
            self.delete()
            raise ConfigError(f"given up: the pod {self._name}, which is to receive the code, cannot start: {reason}")
        raise NoCapacity(f"the pod {self._name} must first copy the code to the volume: {reason}")


def _send(execution: Execution, files: Mapping[str, tuple[Path, str]]) -> None:
    """Send the files to the pod. Raises: ExecError, ApiError."""
    listing = [{"name": name, "size": path.stat().st_size, "digest": digest} for name, (path, digest) in files.items()]
    execution.send(json.dumps(listing).encode() + b"\n")
    try:
        missing = json.loads(execution.line())
    except (ValueError, RecursionError) as error:
        raise ExecError(f"it answers {error}") from error
    if not isinstance(missing, list) or not all(isinstance(name, str) and name in files for name in missing):
        raise ExecError(f"it answers {json.dumps(missing):.200}")
    for name in dict.fromkeys(missing):
        path, _ = files[name]
        log.info("writing %s to the volume (%d bytes)", name, path.stat().st_size)
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                execution.send(chunk)
    answer = execution.line()
    if answer != b"done":
        raise ExecError(f"it answers {answer!r:.200}")
