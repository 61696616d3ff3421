"""Folders of stopped experiments, written directly: as many as one likes, in no time."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

from nnilite._experiments import registry
from nnilite._experiments.documents import write_json
from nnilite._store.writer import Store
from nnilite.config import from_dict
from platforms.many_trials import SPACE, fill

TRIALS = 12


def stopped(experiment: str, name: str, *, trials: int = TRIALS, started: float | None = None) -> Path:
    """Write an experiment that has stopped after so many trials; returns its folder."""
    folder = registry.root() / experiment
    folder.mkdir(parents=True)
    registry.make_folders(folder)
    write_json(folder / "config.json", _config(name, folder.parent))
    write_json(folder / "manager.json", {"state": "STOPPED", "ended": time.time()})
    with contextlib.closing(Store.create(folder / "nnilite.sqlite", experiment, time.time() - 100)):
        pass
    fill(folder / "nnilite.sqlite", trials, 0)
    registry.add(experiment, name, folder, "local", started or time.time())
    return folder


def copies(template: Path, count: int) -> None:
    """Write so many experiments like one, each an hour older than the one before: `copy000`, `copy001`, ..."""
    for number in range(count):
        experiment = f"copy{number:03}"
        shutil.copytree(template, template.with_name(experiment), symlinks=True)
        started = time.time() - 3600 * (number + 1)
        registry.add(experiment, f"run {number}", template.with_name(experiment), "local", started)


def _config(name: str, folder: Path) -> object:
    config = {
        "experimentName": name,
        "searchSpace": SPACE,
        "trialCommand": "sleep 60",
        "trialCodeDirectory": str(folder),
        "trialConcurrency": 1,
        "maxTrialNumber": 100,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
    }
    return from_dict(config, folder).checked().json(secrets=True)
