"""No process that a test has started outlives the run: those that do are listed, and fail it.

A process belongs to the run if its environment has the run's identity, or its command or working directory lies below
the run's temporary folder.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from nnilite._keeper.process import environments
from nnilite.testing import eventually

VARIABLE = "NNILITE_TEST_RUN"
GRACE_S = float(os.environ.get("NNILITE_TEST_GRACE_S", "45"))
"""How long a process may take to end after the last test: one waits for a disk that hangs for half a minute."""
EXIT_STATUS = 20
"""Not that of failed tests: these may pass in a second round, and the processes are left all the same."""

_LEFT = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(VARIABLE, uuid.uuid4().hex)


def left_processes(run: str, folder: str) -> dict[int, str]:
    """Return the command lines, by process id, of what belongs to a run, apart from this process and its parents."""
    own = _with_parents(os.getpid())
    return {
        process: command
        for process, environment in environments()
        if process not in own and (command := _command_if_of(process, environment, run, folder))
    }


def _with_parents(process: int) -> set[int]:
    found = set()
    while process > 0:
        found.add(process)
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def _command_if_of(process: int, environment: set[bytes], run: str, folder: str) -> str:
    """Return the command line of a process; empty if it belongs to another run, has ended, or cannot be read."""
    about = Path(f"/proc/{process}")
    try:
        command = (about / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        belongs = f"{VARIABLE}={run}".encode() in environment
        if belongs or folder in command or str((about / "cwd").readlink()).startswith(folder):
            return command
    except OSError:
        # It has ended meanwhile, or belongs to another user.
        pass
    return ""


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        # The first process of the run looks once the others have ended.
        return
    folder = str(session.config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]
    try:
        eventually(lambda: not left_processes(os.environ[VARIABLE], folder), GRACE_S)
    except TimeoutError:
        # They are listed below.
        pass
    left = left_processes(os.environ[VARIABLE], folder)
    session.config.stash[_LEFT] = [f"{process}: {command[:200]}" for process, command in left.items()]
    if left:
        session.exitstatus = EXIT_STATUS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = terminalreporter.config.stash.get(_LEFT, [])
    if left:
        terminalreporter.section("processes that tests have left behind", red=True, bold=True)
        for line in left:
            terminalreporter.line(line)
