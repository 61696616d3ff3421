"""Looking at this machine: words of shell commands, files, processes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path


def quoted(path: Path) -> str:
    """Return a path as a word of a shell command."""
    return shlex.quote(str(path))


def python(program: str) -> str:
    """Return a shell command that runs a Python program; arguments may follow."""
    return " ".join([shlex.quote(sys.executable), "-c", shlex.quote(program)])


# `os.walk` passes over folders that are removed while it looks; `rglob` raises.
def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted, also while others write and remove there."""
    return sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)


def holds(path: Path, text: str) -> bool:
    """Return whether a file has this text in it."""
    try:
        return text.encode() in path.read_bytes()
    except FileNotFoundError:
        return False


def runs(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False, timeout=60)
    state = found.stdout.decode().strip()
    return bool(state) and not state.startswith("Z")


def command_lines() -> list[str]:
    """Return the command lines of all processes."""
    found = subprocess.run(["ps", "-eo", "args", "-ww"], capture_output=True, check=True, timeout=60)
    return found.stdout.decode("utf-8", "replace").splitlines()
