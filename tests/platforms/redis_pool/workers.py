"""Workers as their users start them, processes that run `nnictl worker`, and workers that start sooner."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import psutil

from harness.ready_programs import ForkedProgram, ProgramTemplate
from nnilite.testing import eventually

TEMPLATE = Path(__file__).parents[2] / "worker_template.py"


class WorkerProcess:
    """One worker, with its files in `folder`. With a template it is forked from that, and imports nothing."""

    def __init__(self, url: str, folder: Path, *more: str, template: ProgramTemplate | None = None, **env: str) -> None:
        self.folder = folder
        self._words = ["worker", "--redis", url, "--folder", str(folder), *more]
        self._env = {**os.environ, **env}
        self._template = template
        self._process: subprocess.Popen[bytes] | ForkedProgram | None = None
        self._log = folder.parent / f"{folder.name}.log"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    @property
    def name(self) -> str:
        """As the pool knows it, once it has joined."""
        place = self.folder / "name"
        return eventually(lambda: place.exists() and place.read_text())

    def start(self) -> WorkerProcess:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = self._begin(log)
        eventually(lambda: "joins the pool" in self.log or self._process.poll() is not None)
        assert self._process.poll() is None, self.log
        return self

    def _begin(self, log: IO[bytes]) -> subprocess.Popen[bytes] | ForkedProgram:
        if self._template is not None and self._template.serves(self._env):
            return self._template.fork([log.fileno()], *self._words, environment=self._env, folder="/")
        command = [sys.executable, "-m", "nnilite._cli", *self._words]
        return subprocess.Popen(command, env=self._env, stdout=log, stderr=log, cwd="/")

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As the kernel does that is out of memory: its trials go on."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self._process.wait(60)

    def wait(self, limit_s: float = 30.0) -> int:
        """Its exit code."""
        assert self._process is not None
        return self._process.wait(limit_s)

    def stop(self) -> None:
        """Told twice, so that it ends what runs."""
        process = self._process
        if process is None or process.poll() is not None:
            self._end_keepers()
            return
        self.signal(signal.SIGCONT)
        process.terminate()
        eventually(lambda: "stopping: no new trials" in self.log or process.poll() is not None)
        process.terminate()
        try:
            process.wait(40)
        finally:
            self.kill()

    def _end_keepers(self) -> None:
        """Those of a worker that was killed wait for a day for another one in its folder."""
        files = f"{self.folder}/"
        running = psutil.process_iter(["cmdline"])
        keepers = [one for one in running if any(word.startswith(files) for word in one.info["cmdline"] or ())]
        for keeper in keepers:
            with contextlib.suppress(psutil.NoSuchProcess):
                keeper.terminate()
        _, rest = psutil.wait_procs(keepers, timeout=20)
        assert not rest, "keepers do not leave when they are told to"
