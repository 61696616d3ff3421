"""An experiment with as many trials as one likes: a real manager over a database that was filled directly."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnilite._experiments.registry import RegistryEntry, is_alive
from nnilite._running import launch
from nnilite._running.manager_client import Client
from nnilite.config import from_dict
from nnilite.testing import eventually

KINDS = ("adam", "sgd", "rmsprop")
SPACE = {
    "lr": {"_type": "loguniform", "_value": [0.0001, 0.1]},
    "hidden": {"_type": "quniform", "_value": [32, 512, 16]},
    "dropout": {"_type": "uniform", "_value": [0, 0.6]},
    "optimizer": {"_type": "choice", "_value": list(KINDS)},
}


@contextlib.contextmanager
def many_trials(trials: int, metrics: int) -> Iterator[tuple[str, Client]]:
    """The address of a running experiment that has so many trials, and a client of it."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("NNILITE_HOME")
        os.environ["NNILITE_HOME"] = folder
        try:
            entry = _stopped(Path(folder))
            fill(entry.directory / "nnilite.sqlite", trials, metrics)
            again = launch.resume(entry, options=launch.ManagerOptions(port=0), detach=False)
            with Client(again.url or "", launch.token(again)) as client:
                try:
                    yield again.url or "", client
                finally:
                    client.stop()
            eventually(lambda: not is_alive(entry.directory), 60)
        finally:
            os.environ.pop("NNILITE_HOME") if before is None else os.environ.update(NNILITE_HOME=before)


def _stopped(folder: Path) -> RegistryEntry:
    """An experiment of one trial at a time that has been stopped."""
    config = {
        "searchSpace": SPACE,
        "trialCommand": "sleep 60",
        "trialCodeDirectory": str(folder),
        "trialConcurrency": 1,
        "maxTrialNumber": 1,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
    }
    entry = launch.create(from_dict(config, folder), options=launch.ManagerOptions(port=0), detach=False)
    with Client(entry.url or "", launch.token(entry)) as client:
        client.stop()
    eventually(lambda: not is_alive(entry.directory), 60)
    return entry


COLUMNS = (
    "sequence, id, parameter_id, parameters, source, state, reason, attempt, "
    "created, started, ended, value, score, revision"
)
ATTEMPT_COLUMNS = (
    "trial, number, service, handle, state, started, ended, exit_code, message, host, url, cancel, reported_end"
)


def fill(path: Path, trials: int, metrics: int) -> None:
    """Trials and metrics as a manager would have left them, with parameters that matter to the result."""
    luck = random.Random(0)
    begin = time.time() - trials * 2
    curve = [json.dumps(1 - math.exp(-step / 9)) for step in range(metrics)]  # that of all trials
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        db.executemany(
            f"INSERT OR REPLACE INTO trials ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (_trial(luck, i, begin) for i in range(trials)),
        )
        db.executemany(
            f"INSERT OR REPLACE INTO attempts ({ATTEMPT_COLUMNS}) "
            "VALUES (?, 0, 'local', NULL, 'SUCCEEDED', ?, ?, 0, '', ?, '', '', NULL)",
            ((i, begin + 2 * i, begin + 2 * i + 1.8, f"node-{i % 4}") for i in range(trials)),
        )
        db.executemany(
            "INSERT OR REPLACE INTO metrics VALUES (?, 0, ?, 0, ?, ?, ?)",
            ((i, k, k, value, begin + 2 * i) for i in range(trials) for k, value in enumerate(curve)),
        )
        limits = {"concurrency": 1, "max_trials": trials, "max_duration_s": None, "max_trial_duration_s": None}
        db.execute("INSERT OR REPLACE INTO meta VALUES ('limits', ?)", (json.dumps(limits),))
        db.execute("COMMIT")


def _trial(luck: random.Random, i: int, begin: float) -> tuple[Any, ...]:
    parameters = {
        "lr": 10 ** luck.uniform(-4, -1),
        "hidden": luck.randrange(32, 513, 16),
        "dropout": luck.uniform(0, 0.6),
        "optimizer": luck.choice(KINDS),
    }
    score = 0.97 - 0.05 * (math.log10(parameters["lr"]) + 2.5) ** 2 - 0.1 * parameters["dropout"] + luck.gauss(0, 0.01)
    failed = luck.random() < 0.03
    end = (None, None) if failed else (repr(score), score)
    state, reason = ("FAILED", "exit code 3 RuntimeError: out of memory on device") if failed else ("SUCCEEDED", "")
    started = begin + 2 * i
    head = (i, f"x{i:07}", i, json.dumps(parameters), "algorithm", state, reason, 0)
    return (*head, started, started, started + 1.8 + luck.random(), *end, i + 1)
