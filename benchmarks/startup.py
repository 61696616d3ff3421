"""Imports and start-up times, above bare Python."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.table import Result

ROUNDS = 25


def measure() -> list[Result]:
    python = sys.executable
    nnictl = str(Path(python).with_name("nnictl"))
    bare, sdk, search, full, help_ = interleaved(
        [python, "-c", "pass"],
        [python, "-c", "import nnilite; nnilite.report_final_result"],
        [python, "-c", "from nnilite import Search"],
        [python, "-c", "import nnilite.experiment"],
        [nnictl, "--help"],
    )
    return [
        above("import of the trial SDK", sdk, bare, 15.0),
        above("`nnictl --help`", help_, bare, 150.0),
        Result("from nnilite import Search", f"{search:.0f} ms", f"python -c pass {bare:.0f} ms", "", "", None),
        Result("import nnilite.experiment", f"{full:.0f} ms", f"python -c pass {bare:.0f} ms", "", "", None),
    ]


def above(what: str, measured: float, bare: float, budget_ms: float) -> Result:
    extra = measured - bare
    return Result(
        what,
        f"{measured:.1f} ms",
        f"python -c pass {bare:.1f} ms",
        f"+{extra:.1f} ms",
        f"+{budget_ms:.0f} ms",
        extra < budget_ms,
    )


def interleaved(*commands: list[str]) -> list[float]:
    """The median time of each command in ms; taken in turns, so that a noisy moment hits all alike."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(ROUNDS):
        for command, found in zip(commands, times, strict=True):
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            found.append((time.perf_counter() - start) * 1000)
    return [statistics.median(found) for found in times]
