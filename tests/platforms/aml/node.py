"""Runs a job as processes of this machine: with its snapshot, variables and mounts; keeps its log and outputs.

Each node has a working directory of its own, with a copy of the snapshot; all nodes are this machine.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import processes
from nnilite.testing.probes import files_below
from platforms.aml.azurite import ACCOUNT, KEY, Azurite

if TYPE_CHECKING:
    from platforms.aml.workspace import StandInJob, StandInWorkspace

FLUSH_S = 0.1
"""How often a log goes up."""
_GRACE_S = 30.0
_MARK = "AZUREML_STAND_IN"


class Blobs:
    """The storage account from within Azure, without the proxy."""

    def __init__(self, azurite: Azurite, container: str) -> None:
        from azure.storage.blob import BlobServiceClient

        self.key = KEY
        # Without the proxies of the environment.
        self._service = BlobServiceClient(
            f"http://127.0.0.1:{azurite.port}/{ACCOUNT}", credential=KEY, connection_timeout=20, use_env_settings=False
        )
        self.container = container
        with suppress(Exception):  # one of another test's workspace is there already
            self._service.create_container(container)

    def close(self) -> None:
        self._service.close()

    def new_container(self, name: str) -> str:
        """Its URL, which lets whoever has it write there."""
        self._service.create_container(name)
        return f"https://{ACCOUNT}.blob.core.windows.net/{name}?{self._make_signature(name)}"

    @staticmethod
    @functools.cache
    def _make_signature(container: str) -> str:
        from azure.storage.blob import ContainerSasPermissions, generate_container_sas

        rights = ContainerSasPermissions(read=True, write=True, list=True, create=True)
        until = datetime.now(timezone.utc) + timedelta(hours=1)
        return str(generate_container_sas(ACCOUNT, container, account_key=KEY, permission=rights, expiry=until))

    def urls(self, prefix: str) -> dict[str, str]:
        """The blobs that begin so, each with a URL that opens it."""
        names = self._service.get_container_client(self.container).list_blob_names(name_starts_with=prefix)
        base, rights = f"https://{ACCOUNT}.blob.core.windows.net/{self.container}", self._make_signature(self.container)
        return {name: f"{base}/{name}?{rights}" for name in names}

    def fetch(self, container: str, prefix: str, folder: Path) -> None:
        client = self._service.get_container_client(container)
        for name in client.list_blob_names(name_starts_with=prefix):
            path = folder / name[len(prefix) :]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(client.download_blob(name).readall())

    def put(self, name: str, data: bytes) -> None:
        self._service.get_blob_client(self.container, name).upload_blob(data, overwrite=True)

    def append(self, name: str, data: bytes, create: bool) -> None:
        client = self._service.get_blob_client(self.container, name)
        if create:
            client.create_append_blob()
        if data:
            client.append_block(data)

    def delete(self, name: str) -> None:
        with suppress(Exception):
            self._service.get_blob_client(self.container, name).delete_blob()

    def names(self, prefix: str) -> list[str]:
        return list(self._service.get_container_client(self.container).list_blob_names(name_starts_with=prefix))


class Mount:
    """A folder of a datastore, where jobs may write: what changes goes up at once."""

    def __init__(self, blobs: Blobs, prefix: str, folder: Path) -> None:
        self._blobs, self._prefix, self.folder = blobs, prefix, folder
        folder.mkdir(parents=True)
        blobs.fetch(blobs.container, prefix, folder)
        self._known = self._files()

    def sync(self) -> None:
        now = self._files()
        for path, state in now.items():
            if self._known.get(path) != state:
                with suppress(FileNotFoundError):  # it was renamed meanwhile
                    self._blobs.put(self._prefix + str(path.relative_to(self.folder)), path.read_bytes())
        for path in set(self._known) - set(now):
            self._blobs.delete(self._prefix + str(path.relative_to(self.folder)))
        self._known = now

    def _files(self) -> dict[Path, tuple[int, int]]:
        found = {}
        for path in files_below(self.folder):
            with suppress(FileNotFoundError):
                found[path] = (path.stat().st_size, path.stat().st_mtime_ns)
        return found


class JobLogFile:
    """What one process prints, and the blob where Azure shows it."""

    def __init__(self, blobs: Blobs, path: Path, blob: str) -> None:
        self._blobs, self._blob = blobs, blob
        self._sent = 0
        self._created = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.file = path.open("wb")

    def flush(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._sent)
            data = file.read(4_000_000)
        if data or not self._created:
            self._blobs.append(self._blob, data, create=not self._created)
            self._created, self._sent = True, self._sent + len(data)
        if len(data) == 4_000_000:
            self.flush()


class JobRun(threading.Thread):
    """One start of a job."""

    def __init__(self, workspace: StandInWorkspace, job: StandInJob, place: Path, code: Mapping[str, Any]) -> None:
        super().__init__(daemon=True, name=job.name)
        self._workspace, self._job, self._code = workspace, job, code
        self._place = place
        self._processes: list[subprocess.Popen[bytes]] = []
        self._taken_away = False
        self._terminated = threading.Event()
        self._kill_at = threading.Timer(_GRACE_S, self.kill)

    def run(self) -> None:
        job, blobs = self._job, self._workspace.blobs
        directories = [self._place / "wd", *(self._place / f"wd-{node}" for node in range(1, job.nodes))]
        container, _, prefix = str(self._code["properties"]["codeUri"]).split("/", 3)[3].partition("/")
        for directory in directories:
            directory.mkdir(parents=True)
            blobs.fetch(container, f"{prefix}/", directory)
        mounts = {name: self._mount(name, output) for name, output in (job.properties.get("outputs") or {}).items()}
        logs = self._start(directories, mounts)
        self._workspace.running(job)
        while any(process.poll() is None for process in self._processes):
            self._sync(logs, list(mounts.values()))
            self._terminated.wait(FLUSH_S) if not self._terminated.is_set() else threading.Event().wait(FLUSH_S)
        self._kill_at.cancel()
        self._end_all(signal.SIGKILL)
        self._workspace.finalizing(job)
        self._sync(logs, list(mounts.values()))
        if not self._taken_away:
            for directory in directories:
                for path in files_below(directory / "outputs"):
                    blobs.put(f"ExperimentRun/dcid.{job.name}/{path.relative_to(directory)}", path.read_bytes())
        codes = [process.returncode for process in self._processes]
        code = next((code if code > 0 else 128 - code for code in codes if code), 0)
        self._workspace.done(job, code, self._taken_away)

    @staticmethod
    def _sync(logs: list[JobLogFile], mounts: list[Mount]) -> None:
        for each in logs:
            each.flush()
        for mount in mounts:
            mount.sync()

    def _mount(self, name: str, output: Mapping[str, Any]) -> Mount:
        match = re.fullmatch(r"azureml://datastores/([^/]+)/paths/(.+/)", output["uri"])
        assert match, output
        return Mount(self._workspace.blobs, match.group(2), self._place / "cap" / name)

    def _start(self, directories: list[Path], mounts: Mapping[str, Mount]) -> list[JobLogFile]:
        job, logs = self._job, []
        command = re.sub(
            r"\${{outputs\.(\w+)}}", lambda found: str(mounts[found.group(1)].folder), job.properties["command"]
        )
        assert "${{" not in command, command
        common = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
            "HOME": str(self._place),
            "AZUREML_RUN_ID": job.name,
            "AZUREML_EXPERIMENT_NAME": job.properties["experimentName"],
            "AZUREML_ARM_SUBSCRIPTION": "stand-in",
            "AZUREML_ARM_WORKSPACE_NAME": "stand-in",
            _MARK: str(self._place),
            **{f"AZURE_ML_OUTPUT_{name}": str(mount.folder) for name, mount in mounts.items()},
            **(job.properties.get("environmentVariables") or {}),
        }
        ranks = _ranks(job)
        for number, own in enumerate(ranks):
            name = "std_log.txt" if len(ranks) == 1 else f"std_log_process_{number:0{len(str(len(ranks) - 1))}}.txt"
            blob = f"ExperimentRun/dcid.{job.name}/user_logs/{name}"
            log = JobLogFile(self._workspace.blobs, self._place / "user_logs" / name, blob)
            logs.append(log)
            with log.file:
                self._processes.append(
                    subprocess.Popen(
                        ["/bin/bash", "-c", command],
                        cwd=directories[number * len(directories) // len(ranks)],
                        env={**common, **own},
                        stdin=subprocess.DEVNULL,
                        stdout=log.file,
                        stderr=log.file,
                        start_new_session=True,
                    )
                )
        if self._terminated.is_set():
            self.terminate()
        return logs

    def terminate(self) -> None:
        """As Azure ends a job that is canceled: softly, and after a while it kills."""
        self._terminated.set()
        if self._processes and not self._kill_at.is_alive():
            with suppress(RuntimeError):
                self._kill_at.start()
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def stop_node(self, node: int) -> None:
        """End the processes of one node softly, as when its machine is shut down."""
        here = len(self._processes) // self._job.nodes
        for process in self._processes[node * here : (node + 1) * here]:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def kill(self, taken_away: bool = False) -> None:
        self._taken_away = self._taken_away or taken_away
        self._end_all(signal.SIGKILL)

    def _end_all(self, how: signal.Signals) -> None:
        """All that was ever started on the nodes."""
        for pid in processes.with_variable(f"{_MARK}={self._place}"):
            with suppress(ProcessLookupError):
                os.kill(pid, how)


def _ranks(job: StandInJob) -> list[dict[str, str]]:
    """The variables of each process of a job, node by node.

    Source of those of PyTorch: learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu.
    """
    given = job.properties.get("distribution")
    if given is None:
        return [{}]
    kind = given["distributionType"]
    if kind == "TensorFlow":
        workers, servers = given.get("workerCount") or job.nodes, given.get("parameterServerCount") or 0
        cluster = {"worker": [f"w{n}:2222" for n in range(workers)], "ps": [f"p{n}:2222" for n in range(servers)]}
        tasks = [("worker", n) for n in range(workers)] + [("ps", n) for n in range(servers)]
        return [
            {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": n}})} for role, n in tasks
        ]
    total = job.nodes * int(given.get("processCountPerInstance") or 1)
    if kind == "Mpi":
        return [{"OMPI_COMM_WORLD_RANK": str(n), "OMPI_COMM_WORLD_SIZE": str(total)} for n in range(total)]
    common = {"WORLD_SIZE": str(total), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "6105"}
    here = total // job.nodes
    return [{"RANK": str(n), "LOCAL_RANK": str(n % here), "NODE_RANK": str(n // here), **common} for n in range(total)]
