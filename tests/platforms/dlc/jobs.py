"""The jobs of the stand-in. Each runs its command for real, as processes of this machine: one for each pod.

A process stands for a container: it gets the variables of the job, a folder of its own, and a log whose lines have
times. The data set on NAS is a folder of this machine, which "pods" find at the same path. A job that is stopped gets
SIGTERM, and SIGKILL after the grace that it asks for. Images of a registry under `.invalid` cannot be pulled.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from waiting import pause

_TURN_S = 0.02
_LARGEST_VARIABLE = 128 * 1024
_NEXT = {
    "Creating": ("Queuing", "Stopping", "Stopped", "Failed"),
    "Queuing": ("EnvPreparing", "Stopping", "Stopped", "Failed"),
    "EnvPreparing": ("Running", "Stopping", "Failed"),
    "Running": ("Succeeded", "Failed", "Stopping", "Restarting"),
    "Restarting": ("Queuing", "Running", "Stopping", "Failed"),
    "Stopping": ("Stopped",),
    "Succeeded": (),
    "Failed": (),
    "Stopped": (),
}
ENDED = ("Succeeded", "Failed", "Stopped")


def written(seconds: float | None) -> str | None:
    """As DLC writes times."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class DlcPodProcess:
    """One pod: a process, and the lines that it has printed, with their times."""

    def __init__(self, job: StandInJob, number: int) -> None:
        self.id = f"{job.id}-{'master' if number == 0 and job.pod_count > 1 else 'worker'}-{number}"
        self.uid = f"uid-{self.id}"
        self.started = time.time()
        self.lines: list[tuple[float, str]] = []
        folder = job.folder / str(number)
        folder.mkdir(parents=True)
        command = folder / "command.sh"
        # Each pod has a disk of its own.
        command.write_text(job.body["UserCommand"].replace("/tmp/nnilite/", f"{folder}/disk/"))
        self.process = subprocess.Popen(
            ["/bin/bash", str(command)],
            cwd=folder,
            env=job.variables(number),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.time(), line.decode("utf-8", "replace").rstrip("\n")))
        self.process.stdout.close()

    def end(self) -> None:
        """Nothing of it stays, whatever sessions it has made."""
        inner = []
        with contextlib.suppress(psutil.NoSuchProcess):
            inner = psutil.Process(self.process.pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for each in inner:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait()
        self._reader.join(5)


class StandInJob:
    """One job, as DLC has it."""

    def __init__(self, job_id: str, body: dict[str, Any], folder: Path) -> None:
        self.id = job_id
        self.body = body
        self.folder = folder
        self.state = "Creating"
        self.code, self.reason = "JobCreated", ""
        self.created = time.time()
        self.running: float | None = None
        self.finished: float | None = None
        self.kill_at = 0.0
        self.restarts = 0
        self.evicted = False
        self.held = False  # it stays in the queue
        self.listed_from = self.created
        self.pods: list[DlcPodProcess] = []

    @property
    def name(self) -> str:
        return str(self.body["DisplayName"])

    @property
    def pod_count(self) -> int:
        return sum(int(spec["PodCount"]) for spec in self.body["JobSpecs"])

    @property
    def grace_s(self) -> float:
        return float(self.body["Settings"]["TerminationGracePeriodSeconds"])

    def variables(self, number: int) -> dict[str, str]:
        """The environment of a pod."""
        own = {}
        if self.body["JobType"] == "PyTorchJob":
            # As alibabacloud.com/help/en/pai/general-environment-variables has them; all pods are this machine.
            own = {"RANK": str(number), "WORLD_SIZE": str(self.pod_count)}
            own.update(MASTER_ADDR="localhost", MASTER_PORT="23456")
        programs = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        found = {"PATH": programs, "HOME": str(self.folder), "LANG": "C.UTF-8", **self.body.get("Envs", {}), **own}
        assert all(len(f"{name}={value}") < _LARGEST_VARIABLE for name, value in found.items())
        return found

    def shown(self, detail: bool) -> dict[str, Any]:
        """As the interface tells it."""
        found = {
            "JobId": self.id,
            "DisplayName": self.name,
            "JobType": self.body["JobType"],
            "Status": self.state,
            "ReasonCode": self.code,
            "ReasonMessage": self.reason,
            "GmtCreateTime": written(self.created),
            "GmtRunningTime": written(self.running),
            "GmtFinishTime": written(self.finished),
            "RestartTimes": f"{self.restarts}/3",
            "UserCommand": self.body["UserCommand"],
            "WorkspaceId": self.body.get("WorkspaceId", "1"),
        }
        if detail:
            found["Envs"] = self.body.get("Envs", {})
            found["Pods"] = [self._pod(pod) for pod in self.pods]
        return {name: value for name, value in found.items() if value is not None}

    def _pod(self, pod: DlcPodProcess) -> dict[str, Any]:
        return {
            "PodId": pod.id,
            "PodUid": pod.uid,
            "Type": "Master" if "-master-" in pod.id else "Worker",
            "Status": "Running" if self.state == "Running" else "Failed",
            "SubStatus": "Evicted" if self.evicted else "Normal",
            "GmtStartTime": written(pod.started),
            "NodeName": "node-7",
        }


class StandInDlc:
    """Runs jobs from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, StandInJob] = {}
        self.room = 100  # so many jobs run at once
        self.tells_jobs = True  # a job that is stopped gets SIGTERM before SIGKILL
        self.broken: list[str] = []  # what went against the state machine
        self.lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="dlc", daemon=True)

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        self._thread.start()

    def stop(self) -> None:
        """End what still runs."""
        self._stopping.set()
        self._thread.join(5)
        for job in self.jobs.values():
            self._end_pods(job)

    def create(self, body: dict[str, Any]) -> StandInJob:
        with self.lock:
            job_id = f"dlc{len(self.jobs):08x}"
            self.jobs[job_id] = StandInJob(job_id, body, self.folder / job_id)
            return self.jobs[job_id]

    def named(self, name: str) -> list[StandInJob]:
        """The jobs of a name."""
        return [job for job in self.jobs.values() if job.name == name]

    def ask_to_stop(self, job: StandInJob) -> None:
        with self.lock:
            if job.state not in (*ENDED, "Stopping"):
                self._move(job, "Stopping", "StoppedByUser", "the job is stopped by its user")

    def take_away(self, job: StandInJob, code: str = "JobPreempted", evicted: bool = True) -> None:
        """As where a spot instance is reclaimed."""
        with self.lock:
            self._end_pods(job)
            job.evicted = evicted
            self._finish(job, "Failed", code, "the pod was taken away")

    def start_anew(self, job: StandInJob) -> None:
        """As where DLC's own fault tolerance is at work."""
        with self.lock:
            self._end_pods(job)
            job.pods = []
            job.restarts += 1
            shutil.rmtree(job.folder, ignore_errors=True)
            self._move(job, "Restarting", "NodeFailure", "")

    def vanish(self, job: StandInJob) -> None:
        """As where somebody deletes it."""
        with self.lock:
            self._end_pods(job)
            del self.jobs[job.id]

    def _loop(self) -> None:
        while not self._stopping.is_set():
            with self.lock:
                for job in list(self.jobs.values()):
                    self._advance(job)
            pause(_TURN_S, "the next look at all jobs, as its scheduler has it")

    def _move(self, job: StandInJob, state: str, code: str = "", reason: str = "") -> None:
        if state not in _NEXT[job.state]:
            self.broken.append(f"{job.id} goes from {job.state} to {state}")
        job.state, job.code, job.reason = state, code, reason

    def _finish(self, job: StandInJob, state: str, code: str, reason: str = "") -> None:
        job.finished = time.time()
        self._move(job, state, code, reason)

    def _advance(self, job: StandInJob) -> None:
        if job.state == "Creating":
            self._move(job, "Queuing", "JobEnqueued", "waiting for resources of the quota")
        elif job.state in ("Queuing", "Restarting"):
            running = sum(other.state in ("EnvPreparing", "Running") for other in self.jobs.values())
            if not job.held and running < self.room:
                self._move(job, "EnvPreparing" if job.state == "Queuing" else "Running")
                if job.state == "Running":
                    self._start_pods(job)
        elif job.state == "EnvPreparing":
            self._prepare(job)
        elif job.state == "Running":
            self._watch(job)
        elif job.state == "Stopping":
            self._take_down(job)

    def _prepare(self, job: StandInJob) -> None:
        image = job.body["JobSpecs"][0]["Image"]
        if image.partition("/")[0].endswith(".invalid"):
            self._finish(job, "Failed", "ImagePullFailed", f"failed to pull image {image}: not found")
            return
        self._start_pods(job)
        job.running = time.time()
        self._move(job, "Running")

    def _start_pods(self, job: StandInJob) -> None:
        job.pods = [DlcPodProcess(job, number) for number in range(job.pod_count)]

    def _watch(self, job: StandInJob) -> None:
        codes = [pod.process.poll() for pod in job.pods]
        if None in codes:
            return
        self._end_pods(job)
        failed = any(codes)
        self._finish(job, "Failed" if failed else "Succeeded", "PodFailed" if failed else "")

    def _take_down(self, job: StandInJob) -> None:
        running = [pod for pod in job.pods if pod.process.poll() is None]
        if running and not job.kill_at:
            job.kill_at = time.monotonic() + (job.grace_s if self.tells_jobs else 0)
            for pod in running:
                pod.process.send_signal(signal.SIGTERM if self.tells_jobs else signal.SIGKILL)
        if running and time.monotonic() < job.kill_at:
            return
        self._end_pods(job)
        self._finish(job, "Stopped", "StoppedByUser", "the job is stopped by its user")

    @staticmethod
    def _end_pods(job: StandInJob) -> None:
        for pod in job.pods:
            pod.end()
