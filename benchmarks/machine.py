"""What the machine itself takes for three things of which trials need many, so that tables can be compared."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.curves import Curve
from benchmarks.startup import interleaved
from benchmarks.table import Result

ROUNDS = 100
DEAR_FILE_MS = 0.2
ADVICE = "dear: see what makes a search slow, in the docs on performance"


def measure() -> list[Result]:
    """An empty start of Python, a new file, and a commit to the disk, each with its median."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
        start = start_ms()
        file = _median_ms(lambda number: (folder / str(number)).touch())
        commit = _median_ms(lambda number: _commit(log, number))
        os.close(log)
    dear = ADVICE if file > DEAR_FILE_MS else ""
    return [
        Result("this machine: an empty start of Python", f"{start:.1f} ms", "", "", "", None),
        Result("this machine: a new file", f"{file:.3f} ms", dear, "", "", None),
        Result("this machine: a commit to the disk", f"{commit:.2f} ms", "", "", "", None),
    ]


def start_ms() -> float:
    """The unit of budgets of time: how long an empty start of Python takes, in milliseconds, the median."""
    return interleaved([sys.executable, "-c", "pass"])[0]


def curve() -> Curve | None:
    return None


def _commit(file: int, number: int) -> None:
    os.pwrite(file, b"x" * 4096, 4096 * number)
    os.fdatasync(file)


def _median_ms(act: Callable[[int], object]) -> float:
    took = []
    for number in range(ROUNDS):
        start = time.perf_counter()
        act(number)
        took.append((time.perf_counter() - start) * 1000)
    return statistics.median(took)
