"""A fork server of keepers with a preloader, and its trials."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

from nnilite._keeper import build

PARENT = (
    "import os, pathlib; __name__ != '__main__' or pathlib.Path(os.environ['NNI_SYS_DIR'], 'parent').write_text("
    "pathlib.Path('/proc/%d/cmdline' % os.getppid()).read_text().rstrip(chr(0))); del os, pathlib\n"
)
"""The first line of a program that writes down which process has started it."""


class End(NamedTuple):
    """How a trial has ended, and what it has left."""

    code: int | None
    stdout: str
    stderr: str
    message: str
    noted: str  # by the keeper
    parent: str  # the command line of the process that has started it
    cause: str

    @property
    def is_preloaded(self) -> bool:
        return self.parent.startswith("nnilite preloader:")


class Server:
    """A fork server of keepers, with its files in `folder`, and trials in `code`."""

    def __init__(self, folder: Path, code: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.code = folder, code
        self._number = 0
        self.log = folder / "fork-server.log"
        with self.log.open("ab") as log:
            keeper = str(build(folder / "keeper.pyz", with_storage=True, with_nodes=True, with_preload=True))
            words = [sys.executable, "-I", "-S", keeper, "serve"]
            self.process = Popen(words, stdin=-1, stdout=-1, stderr=log, text=True, env={**os.environ, "LEVEL": "3"})

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()
        self.process.stdout.close()

    def order(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def event(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        heard: dict[str, Any] = json.loads(self.process.stdout.readline())
        return heard

    def preload(self, command: str, modules: Sequence[str]) -> dict[str, Any]:
        self.order({"preload": {"modules": [*modules], "command": command, "code": str(self.code)}})
        return self.event()

    def begin(self, command: str, **more: Any) -> Path:
        """Start a trial, and return its folder."""
        self._number += 1
        place = self.folder / "trials" / str(self._number) / "0"
        place.mkdir(parents=True)
        spec = {"job": f"nni-e-{self._number}-0", "experiment": "e", "trial": str(self._number), "command": command}
        spec |= {"directory": str(place), "code": {"in_place": str(self.code)}, "parameters": {}, **more}
        (place / "spec.json").write_text(json.dumps(spec))
        self.order({"spec": str(place / "spec.json"), "again": True})
        assert self.event()["event"] == "started"
        return place

    def end(self, place: Path) -> End:
        """The end of the trial in this folder."""
        event = self.event()
        assert event["event"] == "ended", event
        return self.read(place)

    def read(self, place: Path) -> End:
        exit_record = json.loads((place / ".nni/exit").read_text())
        texts = [place / "trial.stdout", place / "trial.stderr", place / ".nni/keeper.log", place / "parent"]
        out, err, noted, parent = (text.read_text() if text.exists() else "" for text in texts)
        return End(exit_record["code"], out, err, exit_record["message"], noted, parent, exit_record["cause"])

    def run(self, command: str, **more: Any) -> End:
        return self.end(self.begin(command, **more))
