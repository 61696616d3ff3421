"""The image, built by the steps of its Dockerfile in a root filesystem of its own, as no registry can be asked here.

This machine's system stands for the base image. Everything else is as the Dockerfile says: files, commands, variables,
user and entry point, which is the first process of a process namespace, on a root filesystem that cannot be written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nnilite.testing.ports import free_port

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("container.sh")
CONFIG = """\
searchSpace: {x: {_type: uniform, _value: [0, 1]}}
trialCommand: sleep 300
trialCodeDirectory: .
trialConcurrency: 1
maxTrialNumber: 1
tuner: {name: Random}
trainingService: {platform: local}
"""


class Dockerfile:
    """The steps of a Dockerfile as lines of bash, and the facts that they leave for the container."""

    def __init__(self, text: str) -> None:
        self.build: list[str] = []
        self.variables = {"PATH": "/opt/python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.user = "0:0"
        self.command: list[str] = []
        self._folder = "/"
        text = re.sub(r"(?m)^#.*\n", "", text).replace("\\\n", " ")
        for line in filter(None, map(str.strip, text.splitlines())):
            word, _, rest = line.partition(" ")
            getattr(self, f"_{word.lower()}")(rest)

    def _from(self, rest: str) -> None:
        assert rest == "python:3.12-slim"

    def _run(self, rest: str) -> None:
        words = " ".join(shlex.quote(f"{name}={value}") for name, value in self.variables.items())
        step = shlex.quote(f"cd {self._folder} && {rest}")
        self.build.append(f"inside {words} /bin/sh -c {step}")

    def _copy(self, rest: str) -> None:
        *sources, target = shlex.split(rest)
        for source in sources:
            if (ROOT / source).is_dir():
                self.build.append(f'mkdir -p "$root{target}"; cp -r "$sources/{source}/." "$root{target}/"')
            else:
                self.build.append(f'install -D -m644 -t "$root{Path(target + "x").parent}" "$sources/{source}"')

    def _env(self, rest: str) -> None:
        self.variables.update(word.split("=", 1) for word in shlex.split(rest))

    def _workdir(self, rest: str) -> None:
        self._folder = rest

    def _user(self, rest: str) -> None:
        self.user = rest

    def _expose(self, rest: str) -> None:
        assert rest == self.variables["NNILITE_LISTEN_PORT"]

    def _entrypoint(self, rest: str) -> None:
        self.command = json.loads(rest)

    def _cmd(self, rest: str) -> None:
        self.command = [*self.command, *json.loads(rest)]

    def facts(self, port: int) -> str:
        """The facts as bash reads them."""
        variables = {**self.variables, "NNILITE_LISTEN_PORT": str(port)}
        probe = [*self.command[:2], "--probe"]
        lists = {"VARIABLES": [f"{name}={value}" for name, value in variables.items()]}
        lists |= {"COMMAND": self.command, "PROBE": probe}
        lines = [f"{name}=({shlex.join(words)})" for name, words in lists.items()]
        return "\n".join([*lines, f"USER_IDS={self.user}", ""])


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="a root filesystem of its own needs root")
@pytest.mark.skipif(not shutil.which("unshare"), reason="unshare, of util-linux, is not installed")
def test_the_image_runs_a_manager_that_goes_on_in_the_next_container(tmp_path: Path) -> None:
    dockerfile = Dockerfile((ROOT / "deploy" / "Dockerfile").read_text())
    (tmp_path / "build.sh").write_text("\n".join([*dockerfile.build, ""]))
    (tmp_path / "facts").write_text(dockerfile.facts(free_port()))
    (tmp_path / "config.yaml").write_text(CONFIG)
    command = ["unshare", "--mount", "--propagation", "private", "--", "bash", SCRIPT, tmp_path, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if line.startswith(("first", "second")))
    first, second = (json.loads(said[name]) for name in ("first", "second"))
    assert [one["id"] for one in first] == [one["id"] for one in second] != []
    assert "the root is read-only" in done.stdout


def test_every_file_of_the_image_is_in_the_context_that_is_sent() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = re.findall(r"(?m)^COPY (.+) \S+$", (ROOT / "deploy" / "Dockerfile").read_text())
    assert sorted(" ".join(copied).split()) == sorted(allowed)
    assert all((ROOT / name).exists() for name in allowed)
