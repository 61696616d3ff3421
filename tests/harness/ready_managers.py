"""Managers that tests start themselves are forked from a process that has imported everything: `manager_template`.

That saves two thirds of the processor time of a start. Managers that a program under test starts are begun as ever, as
are those of tests that change what Python itself reads at its start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from harness.ready_programs import ForkedProgram, ProgramTemplate
from nnilite._running import manager_process
from nnilite._running.manager_process import ManagerProcess, start_standby

PROGRAM = Path(__file__).parents[1] / "manager_template.py"
FOLDERS = ("tests/e2e/", "tests/platforms/", "tests/services/")
"""Elsewhere the start itself may be what is tested."""


class ForkedManager:
    """What `ManagerProcess` uses of a `Popen`, for a process that is not a child of this one."""

    def __init__(self, program: ForkedProgram, stdin: IO[bytes]) -> None:
        self.stdin = stdin
        self.pid = program.pid
        self.kill = program.kill
        self.wait = program.wait


class ManagerTemplate:
    """The process from which managers are forked. It is started for the first of them."""

    def __init__(self) -> None:
        # The last word is what tells the process of a manager from others.
        self._template = ProgramTemplate(PROGRAM, "nnilite._manager")
        self.end = self._template.end

    def start_standby(self) -> ManagerProcess:
        """Do what `nnilite._running.manager_process.start_standby` does."""
        if not self._template.serves(os.environ):
            return start_standby()
        early_words = os.fdopen(os.memfd_create("early words"), "w+b")
        (heard, told), (ready, low) = os.pipe(), os.pipe()
        surroundings: Any = {"environment": os.environ, "folder": Path.cwd()}
        try:
            program = self._template.fork([heard, early_words.fileno(), low], "--stand-by", **surroundings)
        finally:
            os.close(heard)
            os.close(low)
        process: Any = ForkedManager(program, os.fdopen(told, "wb", buffering=0))
        return ManagerProcess(process, os.fdopen(ready, "rb", buffering=0), early_words)


@pytest.fixture(scope="session")
def manager_template() -> Iterator[ManagerTemplate]:
    template = ManagerTemplate()
    yield template
    template.end()


@pytest.fixture(autouse=True, scope="module")
def _ready_managers(request: pytest.FixtureRequest, manager_template: ManagerTemplate) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.node.nodeid.startswith(FOLDERS):
            for way in ("start_standby", "fork"):
                patch.setattr(manager_process, way, manager_template.start_standby)
        yield
