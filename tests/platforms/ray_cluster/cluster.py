"""A real Ray cluster on this machine: a head node, and a second node that can be killed.

All its processes, and all that its jobs start, have a mark in their environment. A reaper, a process of its own, kills
everything with this mark when the cluster is stopped, and when the test run is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import requests

import processes
from nnilite.testing import eventually
from nnilite.testing.ports import free_ports

TOKEN = "a-token-for-tests-0123456789abcdef"
SECOND = "second_node"  # a resource of the second node alone
_START_S = 170.0
_MARK = "NNILITE_TEST_RAY"
_REAPER = Path(__file__).with_name("reaper.py")
_QUICK = {  # a dead node is noticed within some seconds
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
    "RAY_raylet_start_wait_time_s": "150",
}


def missing() -> str:
    """Why there can be no cluster here; "" if there can be one."""
    if not sys.platform.startswith("linux"):
        return "these tests find the processes of Ray in /proc"
    return "" if _find_program().exists() else "ray is not installed"


def _find_program() -> Path:
    return Path(sys.executable).parent / "ray"


class RayCluster:
    """`start`, and `stop` in any case. `url` is that of its dashboard."""

    def __init__(self, cpus: int = 8) -> None:
        self.cpus = cpus
        # Ray's sockets lie in it, whose paths have 107 characters at most.
        self.folder = Path(tempfile.mkdtemp(prefix="nnl-ray-", dir="/tmp"))
        self._port, self._dashboard = free_ports(2)
        self._mark = f"{_MARK}={self.folder.name}"
        self._reaper: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._dashboard}"

    def start(self) -> None:
        """Start the head node, and wait until it takes jobs."""
        if self._reaper is None:
            words = [sys.executable, "-S", str(_REAPER), self._mark]
            self._reaper = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        self._ray(
            "--head",
            f"--port={self._port}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={self._dashboard}",
            f"--temp-dir={self.folder}",
            f"--num-cpus={self.cpus}",
        )
        eventually(self._takes_jobs, _START_S)

    def start_second(self) -> None:
        """Start the second node, and wait until it has joined."""
        self._ray(f"--address=127.0.0.1:{self._port}", "--num-cpus=2", f'--resources={{"{SECOND}": 4}}')
        eventually(lambda: SECOND in self.ask("/api/v0/nodes?detail=1").text, _START_S)

    def kill_second(self) -> None:
        """As if its power had failed: nothing of it says good-bye."""
        for pid in self._raylets(SECOND):
            os.kill(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        """End the head node and all others, at once."""
        reaper, self._reaper = self._reaper, None
        if reaper is not None and reaper.stdin is not None:
            reaper.stdin.close()
            reaper.wait(60)

    def stop(self) -> None:
        self.kill_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, path: str, method: str = "GET", **more: object) -> requests.Response:
        """A call with the right token."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return requests.request(method, self.url + path, headers=headers, timeout=60, **more)  # type: ignore[arg-type]

    def _ray(self, *words: str) -> None:
        common = [
            "--disable-usage-stats",
            "--num-gpus=0",
            "--object-store-memory=80000000",
            "--dashboard-agent-listen-port=0",
            "--min-worker-port=10002",  # `nnilite.testing.ports` has those above
            "--max-worker-port=11999",
        ]
        command = [str(_find_program()), "start", *words, *common]
        log = self.folder / "start.log"
        with log.open("ab") as out:
            ran = subprocess.run(
                command, env=self._environment(), cwd="/", stdout=out, stderr=out, timeout=_START_S, check=False
            )
        if ran.returncode:
            raise RuntimeError(log.read_text("utf-8", "replace"))

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        name, _, value = self._mark.partition("=")
        return {
            **kept,
            **_QUICK,
            name: value,
            "PATH": f"{_find_program().parent}:{kept.get('PATH', '')}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": TOKEN,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_enable_metrics_collection": "0",
            "TMPDIR": str(self.folder),
        }

    def _takes_jobs(self) -> bool:
        """Its interface answers before there is an agent that could start a job."""
        try:
            if self.ask("/api/jobs/").status_code != 200:
                return False
            return self.ask("/api/jobs/nobody/logs").status_code == 404 and self._has_agent()
        except requests.RequestException:
            return False

    def _has_agent(self) -> bool:
        body = {"entrypoint": "true", "submission_id": "first", "metadata": {}}
        return "first" in self.ask("/api/jobs/", "POST", json=body).text

    def _raylets(self, word: str) -> list[int]:
        """The node agents that were started with this word."""
        words = {pid: processes.read(pid, "cmdline") for pid in processes.with_variable(self._mark)}
        return [pid for pid, line in words.items() if b"raylet/raylet\0" in line and word.encode() in line]
