"""One task of a job: its command as a process of this machine, in the environment that PAI's runtime would give."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

# The runtime's own scripts have these options (openpai-runtime, src/runtime.d/runtime_entry.sh), and so has user.sh, to
# which its init container adds the commands (src/init.d/user_command_renderer.py), as seen in a real task.
_OPTIONS = "set -o errexit\nset -o nounset\nset -o pipefail\n"
CONTAINER_PATH = "/tmp/nnilite"
_PORTS = (20_000, 29_999)


class PaiTask:
    """Its container's folder is `root`; the container's /tmp/nnilite is there."""

    def __init__(self, role: str, index: int, root: Path) -> None:
        self.role, self.index, self.root = role, index, root
        self.uid = hashlib.md5(str(root).encode()).hexdigest()
        self.attempt = 0
        self.started: float | None = None
        self.ended: float | None = None
        self.code: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def port(self, label: str, number: int) -> int:
        """As PAI's runtime chooses it."""
        digest = hashlib.md5(f"[{self.uid}][{label}][{number}]".encode()).hexdigest()
        first, end = _PORTS
        return sum(int(digest[a:b], 16) for a, b in ((0, 12), (12, 24), (24, 32))) % (end - first) + first

    def log(self, stream: str) -> Path:
        return self.root / "logs" / f"user.pai.{stream}"

    def start(self, commands: str, environment: Mapping[str, str]) -> None:
        """As the runtime does: user.sh, whose standard streams are pipes in between."""
        (self.root / "logs").mkdir(parents=True)
        place = self.root / "container's $HOME"
        place.mkdir()
        text = commands.replace(CONTAINER_PATH, shlex.quote(str(place / "tmp" / "nnilite")))
        (place / "tmp").mkdir()
        script = self.root / "user.sh"
        script.write_text(f"#!/bin/bash\n{_OPTIONS}{text}\n")
        script.chmod(0o700)
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "/usr/bin:/bin")))
        with self.log("stdout").open("wb") as out, self.log("stderr").open("wb") as err:
            self._process = subprocess.Popen(
                ["bash", str(script)],
                cwd=place,
                env={"PATH": path, "HOME": str(place), "LANG": "C.UTF-8", **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.started = time.time()

    def look(self) -> None:
        """Whether it has ended by now."""
        if self._process is not None and self.ended is None and (code := self._process.poll()) is not None:
            self.finish(128 - code if code < 0 else code)

    def finish(self, code: int) -> None:
        self.code, self.ended = code, time.time()

    def kill(self, code: int) -> None:
        """The container ends, at once: PAI's runtime hands no SIGTERM on."""
        if self.ended is not None:
            return
        if self._process is not None:
            for process in _all_of(self._process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait(60)
        self.finish(code)


def _all_of(pid: int) -> list[psutil.Process]:
    """A process and all below it, held so that none is born meanwhile."""
    found: list[psutil.Process] = []
    try:
        queue = [psutil.Process(pid)]
    except psutil.NoSuchProcess:
        return found
    while queue:
        process = queue.pop()
        try:
            process.suspend()
            queue.extend(process.children())
        except psutil.NoSuchProcess:
            continue
        found.append(process)
    return found


def rendered(text: str, values: Mapping[str, Mapping[str, Any]]) -> str:
    """What mustache makes of a command with PAI's delimiters."""

    def value(match: re.Match[str]) -> str:
        group, _, name = match.group(1).partition(".")
        return str(values.get(group, {}).get(name, ""))

    return re.sub(r"<%\s*\$([\w.]+)\s*%>", value, text).strip()
