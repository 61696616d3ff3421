"""Makes folders of experiments as Microsoft NNI leaves them, by its documented layout and tables."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TABLES = """
CREATE TABLE TrialJobEvent (timestamp integer, trialJobId text, event text, data text, logPath text, sequenceId integer,
  message text, environmentId text);
CREATE TABLE MetricData (timestamp integer, trialJobId text, parameterId text, type text, sequence integer, data text);
CREATE TABLE ExperimentProfile (params text, id text, execDuration integer, startTime integer, endTime integer,
  logDir text, nextSequenceId integer, revision integer);
"""
BEGAN_MS = 1_700_000_000_000


@dataclass
class NniTrial:
    """A trial: the parameters that NNI recorded under `parameter_id`, and those that it reported with."""

    id: str
    parameters: dict[str, Any]
    parameter_id: int | None = 0
    reported_as: int | None = None  # the parameter id in its metrics, if it is another one
    final: Any = None
    intermediates: Sequence[Any] = ()
    events: Sequence[str] = ("RUNNING", "SUCCEEDED")
    number: int = 0
    output: str = ""


@dataclass
class NniFolder:
    """What is written for one experiment."""

    id: str = "oldone12"
    trials: Sequence[NniTrial] = ()
    status: str = "DONE"
    imports: Sequence[Sequence[dict[str, Any]]] = ()
    params: dict[str, Any] = field(default_factory=dict)
    listed: bool = True


def make(root: Path, experiment: NniFolder) -> Path:
    """Write an experiment into the folder of experiments; returns its own folder."""
    folder = root / experiment.id
    for name in ("db", "log", "checkpoint", "environments/local-env/trials"):
        (folder / name).mkdir(parents=True)
    (folder / "log" / "nnimanager.log").write_text("INFO (NNIManager) Experiment done.\n")
    for trial in experiment.trials:
        files = folder / "environments/local-env/trials" / trial.id
        files.mkdir()
        (files / "trial.log").write_text(trial.output)
        (files / "trial.stdout").touch()
    with contextlib.closing(sqlite3.connect(folder / "db" / "nni.sqlite")) as db:
        _fill(db, experiment)
        db.commit()
    if experiment.listed:
        _list(root, experiment)
    return folder


def fingerprint(folder: Path) -> dict[str, str]:
    """Name and content of each file, to see that nothing was changed."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _fill(db: sqlite3.Connection, experiment: NniFolder) -> None:
    db.executescript(_TABLES)
    params = {
        "experimentName": "an old one",
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": "python3 trial.py",
        "trialConcurrency": 2,
        "maxTrialNumber": 8,
        "maxExperimentDuration": "1h",
        "tuner": {"name": "TPE", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local", "password": "never shown"},
        **experiment.params,
    }
    for revision in (1, 2):
        row = (json.dumps(params), experiment.id, 7 * revision, BEGAN_MS, BEGAN_MS + 60_000, "", 0, revision)
        db.execute("INSERT INTO ExperimentProfile VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    for place, trial in enumerate(experiment.trials):
        _add(db, trial, BEGAN_MS + place * 1000)
    for data in experiment.imports:
        event = (BEGAN_MS, "", "IMPORT_DATA", json.dumps(list(data)), None, None, None, None)
        db.execute("INSERT INTO TrialJobEvent VALUES (?, ?, ?, ?, ?, ?, ?, ?)", event)


def _add(db: sqlite3.Connection, trial: NniTrial, time: int) -> None:
    source = "customized" if trial.parameter_id is None else "algorithm"
    record = {"parameter_id": trial.parameter_id, "parameter_source": source, "parameters": trial.parameters}
    for place, event in enumerate(trial.events):
        data = json.dumps({**record, "parameter_index": 0}) if place == 0 else None
        row = (time + place * 100, trial.id, event, data, "/somewhere", trial.number, None, "local-env")
        db.execute("INSERT INTO TrialJobEvent VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    said = trial.parameter_id if trial.reported_as is None else trial.reported_as
    reports = [("PERIODICAL", place, value) for place, value in enumerate(trial.intermediates)]
    reports += [] if trial.final is None else [("FINAL", 0, trial.final)]
    for kind, sequence, value in reports:
        metric = (time + 50, trial.id, str(said), kind, sequence, json.dumps(json.dumps(value)))
        db.execute("INSERT INTO MetricData VALUES (?, ?, ?, ?, ?, ?)", metric)


def _list(root: Path, experiment: NniFolder) -> None:
    path = root / ".experiment"
    known = json.loads(path.read_text()) if path.exists() else {}
    known[experiment.id] = {
        "id": experiment.id,
        "port": 8080,
        "startTime": BEGAN_MS,
        "endTime": BEGAN_MS + 60_000,
        "status": experiment.status,
        "platform": "local",
        "experimentName": "an old one",
        "tag": [],
        "pid": 2**22 + 7,
        "webuiUrl": [],
        "logDir": str(root),
        "prefixUrl": None,
    }
    path.write_text(json.dumps(known, indent=4))
