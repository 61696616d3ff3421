"""The jobs of the stand-in. Each runs its command for real, as a process of this machine, once DLTS' rules allow it.

A process stands for a container: it gets the variables of DLTS and of the job, a home folder that all jobs of the user
share, and a log. Its disk, /tmp/nnilite/JOB, goes with it. Images of a registry under `.invalid` cannot be pulled. The
first process of a real container passes no signals on to the command, so a job that is ended gets SIGKILL after the
grace, as Kubernetes has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from platforms.dlts.contract import STATES
from waiting import pause

TEAM = "vc 1/Ü"
EMAIL = "alice@example.com"
_TURN_S = 0.02
_LARGEST_VARIABLE = 128 * 1024
_COUNTED = ("queued", "scheduling", "running")


def now() -> str:
    """As DLTS writes times."""
    return datetime.now(timezone.utc).isoformat()


class ClusterJob:
    """One job, as the cluster has it."""

    def __init__(self, params: dict[str, Any], folder: Path) -> None:
        self.id = str(params["jobId"])
        self.params = params
        self.folder = folder
        self.state = STATES["initial"]
        self.created = now()
        self.detail: list[dict[str, str]] = []
        self.error = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.runs = 0
        self.kill_at = 0.0

    @property
    def gpus(self) -> int:
        return int(self.params.get("resourcegpu") or 0)

    def log(self) -> bytes | None:
        """What it has printed so far; None before it has begun."""
        place = self.folder / "log"
        return place.read_bytes() if place.exists() else None

    def shown(self) -> dict[str, Any]:
        """As the API tells it."""
        return {
            "jobId": self.id,
            "jobName": self.params["jobName"],
            "userName": EMAIL,
            "vcName": self.params["vcName"],
            "jobStatus": self.state,
            "jobStatusDetail": self.detail or None,
            "jobType": "training",
            "jobTime": self.created,
            "jobParams": self.params,
            "priority": 100,
        }


class DltsCluster:
    """Runs jobs from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, ClusterJob] = {}
        self.quota = 4
        self.user_quota = 3
        self.grace_s = 4.0
        self.reads = "envs"  # which of the lists of variables this version reads
        self.broken: list[str] = []  # what went against the state machine
        self.lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="dlts", daemon=True)

    def start(self) -> None:
        (self.folder / "home").mkdir(parents=True)
        self._thread.start()

    def stop(self) -> None:
        """End what still runs."""
        self._stopping.set()
        self._thread.join(5)
        for job in self.jobs.values():
            self._end_container(job)

    def submit(self, params: dict[str, Any]) -> dict[str, str]:
        """As the back end does: what it refuses it tells by `error`."""
        params = {**params, "jobId": params.get("jobId") or str(uuid.uuid4())}
        for name, meaning in (("jobName", "Job name"), ("vcName", "VC name")):
            if not str(params.get(name) or "").strip():
                return {"error": f"Cannot create job!ERROR: {meaning} cannot be empty"}
        if params["vcName"] != TEAM:
            return {"error": "Cannot create job!Access Denied!"}
        for name in ("workPath", "dataPath"):
            if ".." in str(params.get(name)) or str(params.get(name)).startswith("/"):
                return {"error": f"Cannot create job!ERROR: '..' cannot be used in {name}"}
        with self.lock:
            if params["jobId"] in self.jobs:
                return {"error": "Cannot schedule job. Cannot add job into database."}
            self.jobs[params["jobId"]] = ClusterJob(params, self.folder / params["jobId"])
        return {"jobId": params["jobId"]}

    def operate(self, job_id: str, operation: str) -> str:
        """kill, pause, resume or approve; DLTS' words."""
        rule = STATES["operations"][operation]
        with self.lock:
            job = self.jobs.get(job_id)
            if job is None or job.state not in rule["from"]:
                return f"Cannot {operation.capitalize()} the job. Job ID:{job_id}"
            self._move(job, rule["to"])
        return "Success, the job is scheduled to be terminated."

    def requeue(self, job_id: str) -> None:
        """As DLTS does with a job whose pod it has lost, or preempts."""
        with self.lock:
            job = self.jobs[job_id]
            self._end_container(job)
            job.detail = [{"message": "waiting for available preemptible resource."}]
            self._move(job, "queued")

    def forget(self, job_id: str) -> None:
        """End a job, and do not know it any more."""
        with self.lock:
            self._end_container(self.jobs.pop(job_id))

    def _loop(self) -> None:
        while not self._stopping.is_set():
            with self.lock:
                for job in list(self.jobs.values()):
                    self._advance(job)
            pause(_TURN_S, "the next look at all jobs, as its manager has it")

    def _move(self, job: ClusterJob, state: str) -> None:
        if state not in STATES["transitions"][job.state]:
            self.broken.append(f"{job.id} goes from {job.state} to {state}")
        job.state = state

    def _advance(self, job: ClusterJob) -> None:
        step = getattr(self, f"_advance_{job.state}", None)
        if step is not None:
            step(job)

    def _advance_unapproved(self, job: ClusterJob) -> None:
        used = sum(other.gpus for other in self.jobs.values() if other.state in _COUNTED)
        if job.gpus and used + job.gpus > self.user_quota:
            asked = f"{used} (used) + {job.gpus} (requested) > {self.user_quota} (user quota)"
            job.detail = [{"message": f"exceeds the user quota in VC: {asked}. Will need admin approval."}]
            return
        job.detail = [{"message": "waiting for available resource."}]
        self._move(job, "queued")

    def _advance_queued(self, job: ClusterJob) -> None:
        used = sum(other.gpus for other in self.jobs.values() if other.state in ("scheduling", "running"))
        if used + job.gpus > self.quota:
            job.detail = [{"message": f"resource not enough, required {job.gpus}, vc schedulable {self.quota - used}"}]
            return
        self._move(job, "scheduling")

    def _advance_scheduling(self, job: ClusterJob) -> None:
        if job.params["image"].partition("/")[0].endswith(".invalid"):
            job.detail = [{"message": f"ErrImagePull: {job.params['image']} not found"}]
            return
        self._start_container(job)
        started = now()
        job.detail = [{"startedAt": started, "message": f"started at: {started}"}]
        self._move(job, "running")

    def _advance_running(self, job: ClusterJob) -> None:
        code = job.process.poll() if job.process is not None else None
        if code is None:
            return
        self._end_container(job)
        state = "failed" if code else "finished"
        job.detail = [{**job.detail[0], "finishedAt": now(), "message": f"{state} at: {now()}"}]
        job.error = f"pod {job.id} failed" if code else ""
        self._move(job, state)

    def _advance_killing(self, job: ClusterJob) -> None:
        self._take_down(job, "killed")

    def _advance_pausing(self, job: ClusterJob) -> None:
        self._take_down(job, "paused")

    def _take_down(self, job: ClusterJob, state: str) -> None:
        if job.process is not None and job.process.poll() is None:
            job.kill_at = job.kill_at or time.monotonic() + self.grace_s
            if time.monotonic() < job.kill_at:
                return
        self._end_container(job)
        job.detail = [{**(job.detail[0] if job.detail else {}), "finishedAt": now(), "message": state}]
        self._move(job, state)

    # ------------------------------------------------------------ containers

    def _start_container(self, job: ClusterJob) -> None:
        job.folder.mkdir(exist_ok=True)
        script = job.folder / "job_command.sh"
        script.write_text(job.params["cmd"])
        job.runs += 1
        with (job.folder / "log").open("ab") as log:
            job.process = subprocess.Popen(
                ["/bin/bash", str(script)],
                cwd=self.folder / "home",
                env=self._make_variables(job),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _make_variables(self, job: ClusterJob) -> dict[str, str]:
        given = {entry["name"]: entry["value"] for entry in job.params.get(self.reads) or []}
        own = {
            "DLTS_JOB_ID": job.id,
            "DLTS_ROLE_NAME": "master",
            "DLTS_NUM_PS": "0",
            "DLTS_NUM_WORKER": "1",
            "DLTS_NUM_GPU_PER_WORKER": str(job.gpus),
            "DLTS_VC_NAME": TEAM,
            "DLTS_USER_NAME": "alice",
            "DLTS_USER_EMAIL": EMAIL,
            "DLTS_LAUNCH_CMD": job.params["cmd"],
        }
        programs = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        found = {"PATH": programs, "HOME": str(self.folder / "home"), "LANG": "C.UTF-8", **own, **given}
        too_long = [name for name, value in found.items() if len(f"{name}={value}") >= _LARGEST_VARIABLE]
        if too_long:
            self.broken.append(f"no container of {job.id} can be started: {too_long} are too long for Linux")
        return {name: value for name, value in found.items() if name not in too_long}

    @staticmethod
    def _end_container(job: ClusterJob) -> None:
        """Nothing of it stays, whatever sessions it has made."""
        process = job.process
        if process is not None:
            inner = []
            with contextlib.suppress(psutil.NoSuchProcess):
                inner = psutil.Process(process.pid).children(recursive=True)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for each in inner:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            process.wait()
        shutil.rmtree(f"/tmp/nnilite/{job.params['jobName']}", ignore_errors=True)


def log_page(text: bytes, kind: str, cursor: str | None, pod: str) -> dict[str, Any]:
    """A log as each of DLTS' kinds gives it."""
    content = text.decode("utf-8", "replace")
    if kind == "legacy":
        return {"log": content, "cursor": None}
    if kind == "azure":
        whole = content[-1024 * 1024 :]
        return {"log": {pod: whole if len(whole) == len(content) else whole.partition("\n")[2]}, "cursor": None}
    lines = content.splitlines(keepends=True)
    begin = int((cursor or "0").partition(".")[0])
    page = [line for line in lines[begin : begin + 100] if line.endswith("\n")]
    if not page:
        return {"log": {}, "cursor": None}
    return {"log": {pod: "".join(page)}, "cursor": f"{begin + len(page)}.0"}


def quota_json(cluster: DltsCluster) -> dict[str, Any]:
    """A team, as GetVC tells it."""
    metadata = {"P40": {"num_gpu_per_node": 4}, "user_quota": cluster.user_quota}
    return {"vcName": TEAM, "quota": json.dumps({"P40": cluster.quota}), "metadata": json.dumps(metadata)}
