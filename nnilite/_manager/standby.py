"""Waits, with everything imported, for the words that make this process the manager of an experiment."""

from __future__ import annotations

import json
import os
from pathlib import Path

from nnilite._logging.log_file import open_log


def await_arguments() -> list[str]:
    """Return the words of the command line, a JSON line on standard input; none if the starter ended first."""
    # Where this process is a copy of its starter, so is `sys.stdin`: it may have read ahead, or be closed.
    with open(0, "rb", closefd=False) as stdin:
        line = stdin.readline()
    return [str(word) for word in json.loads(line)] if line.endswith(b"\n") else []


def write_to(log: Path) -> None:
    """Direct all output of this process to a log. Raises: OSError."""
    out = open_log(log)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.close(out)


def hear_nothing() -> None:
    """Continue without the standard input of the process that started this one."""
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
