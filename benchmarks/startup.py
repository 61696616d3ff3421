"""Imports and start-up times, above bare Python; and how `nnictl` feels the number of experiments that there are."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import costs
from benchmarks.curves import Curve
from benchmarks.experiments import SPACE, experiment
from benchmarks.table import Result, in_starts
from nnilite._experiments import registry
from nnilite._running import managers

ROUNDS = 25
STARTS = 9
FIRST_TRIAL_STARTS, HELP_STARTS, SEARCH_STARTS = 35.0, 3.5, 3.0
WHOLE_CPU_MS, WHOLE_MS = 500.0, 600.0
TWO_TRIALS = {
    "searchSpace": SPACE,
    "trialCommand": "true",
    "trialConcurrency": 2,
    "maxTrialNumber": 2,
    "tuner": {"name": "Random"},
    "trainingService": {"platform": "local"},
}
SIZES = (10, 100, 1000)


def measure() -> list[Result]:
    python, nnictl = sys.executable, _nnictl()
    bare, sdk, search, full, help_ = interleaved(
        [python, "-c", "pass"],
        [python, "-c", "import nnilite; nnilite.report_final_result"],
        [python, "-c", "from nnilite import Search"],
        [python, "-c", "import nnilite.experiment"],
        [nnictl, "--help"],
    )
    return [
        above("import of the trial SDK", sdk, bare, 15.0),
        in_starts("`nnictl --help`", help_, bare, HELP_STARTS),
        in_starts("`from nnilite import Search`", search, bare, SEARCH_STARTS),
        Result("import nnilite.experiment", f"{full:.0f} ms", f"python -c pass {bare:.0f} ms", "", "", None),
        first_trial(bare),
        *whole(bare),
    ]


def first_trial(bare: float) -> Result:
    """From the start of `nnictl create` to the start of the first trial, median; `bare`: ms of an empty start."""
    took = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NNILITE_HOME"] = str(Path(folder) / "home")
        config = Path(folder) / "config.yml"
        config.write_text(json.dumps(TWO_TRIALS))
        for _ in range(STARTS):
            began = time.time()
            command = [_nnictl(), "create", "--config", str(config), "--port", "0", "--json"]
            created = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            entry = registry.find(json.loads(created.stdout)["id"])
            with managers.connect(entry) as client:
                while client.profile()["state"] != "DONE":
                    time.sleep(0.05)
                took.append(min(trial["started"] for trial in client.trials()) - began)
            managers.stop(entry)
    median_ms = statistics.median(took) * 1000
    return in_starts("`nnictl create` to the first trial, median", median_ms, bare, FIRST_TRIAL_STARTS)


def whole(bare: float) -> list[Result]:
    """An experiment of two trials that do nothing, from the command until all of its processes have ended, medians."""
    with tempfile.TemporaryDirectory() as folder:
        home = {"NNILITE_HOME": str(Path(folder) / "home")}
        config = Path(folder) / "config.yml"
        config.write_text(json.dumps(TWO_TRIALS))
        command = [_nnictl(), "create", "--config", str(config), "--port", "0", "--foreground"]
        found = [costs.with_descendants_s(command, Path(folder), home) for _ in range(STARTS)]
    what, base = "start and end of an experiment", f"python -c pass {bare:.0f} ms"
    medians = (statistics.median(times) * 1000 for times in zip(*found, strict=True))
    return [
        Result(f"{what}: {kind}", f"{ms:.0f} ms", base, f"{ms / bare:.0f} times", f"{goal:.0f} ms", ms <= goal)
        for kind, ms, goal in zip(("processor", "wall"), medians, (WHOLE_CPU_MS, WHOLE_MS), strict=True)
    ]


def curve() -> Curve:
    points = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NNILITE_HOME"] = folder
        with experiment(Path(folder), "true", 1) as (entry, client):
            while client.profile()["state"] != "DONE":
                time.sleep(0.05)
        for number in range(1, max(SIZES) + 1):
            if number > 1:
                copy = Path(folder) / f"copy{number}"
                shutil.copytree(entry.directory, copy, ignore=shutil.ignore_patterns("trials", "code"))
                registry.add(copy.name, "", copy, entry.platform, entry.started)
            if number in SIZES:
                points.append((number, interleaved([_nnictl(), "experiment", "list", "--all"])[0]))
    return Curve("nnictl experiment list", "experiments of this user", "ms", points)


def above(what: str, measured: float, bare: float, budget_ms: float) -> Result:
    extra = measured - bare
    return Result(
        what,
        f"{measured:.1f} ms",
        f"python -c pass {bare:.1f} ms",
        f"{extra:+.1f} ms",
        f"+{budget_ms:.0f} ms",
        extra < budget_ms,
    )


def _nnictl() -> str:
    return str(Path(sys.executable).with_name("nnictl"))


def interleaved(*commands: list[str]) -> list[float]:
    """The median time of each command in ms; taken in turns, so that a noisy moment hits all alike."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(ROUNDS):
        for command, found in zip(commands, times, strict=True):
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            found.append((time.perf_counter() - start) * 1000)
    return [statistics.median(found) for found in times]
