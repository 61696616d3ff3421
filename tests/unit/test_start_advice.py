"""What the doctor and the page say where the start of trials is most of their time."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nnilite._doctor import own_command
from nnilite._doctor.script_imports import find_imports
from nnilite._sdk.worker_facts import NAME
from nnilite._store.database_schema import SCHEMA
from nnilite._store.notices import find_notices
from nnilite._views.experiment_view import _can_preload
from nnilite.config import from_dict

CONFIG = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": "python3 -u trial.py --fast",
    "trialConcurrency": 1,
    "tuner": {"name": "Random"},
    "trainingService": {"platform": "local"},
}
SCRIPT = """
import os, numpy as np
import beside
from sklearn.svm import SVC
from . import other
import nnilite
"""


@pytest.mark.parametrize("command", ["OMP_NUM_THREADS=1 python3 trial.py", "python3 -m trial"])
def test_installed_modules_of_the_script_are_named(command: str, tmp_path: Path) -> None:
    (tmp_path / "trial.py").write_text(SCRIPT)
    (tmp_path / "beside.py").touch()
    assert find_imports(command, tmp_path) == ["numpy", "sklearn.svm"]


@pytest.mark.parametrize("command", ["python3 absent.py", "python3 wrong.py", "./trial.sh", "python3 a.py && true"])
def test_no_module_is_named_where_the_script_cannot_be_read(command: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import (")
    assert find_imports(command, tmp_path) == []


def test_the_doctor_writes_the_field(tmp_path: Path) -> None:
    (tmp_path / "trial.py").write_text(SCRIPT)
    config = from_dict(CONFIG, tmp_path).checked()
    sentence = "trial 0 took 1.8 s, 1.3 s of them before it asked for its parameters: and so on"
    (found,) = own_command.judge_start("platform local", ["another", sentence], config)
    assert found.what == "trial 0 took 1.8 s, 1.3 s of them before it asked for its parameters"
    assert found.cure.endswith("preload: [beside, numpy, sklearn.svm]")


@pytest.mark.parametrize(
    ("changed", "can"),
    [
        ({}, True),
        ({"trialCommand": "./trial.sh"}, False),
        ({"trainingService": {"platform": "local", "preload": ["json"]}}, False),
        ({"trainingService": {"platform": "slurm"}}, False),
    ],
)
def test_only_where_trials_can_start_so_it_is_said(changed: dict[str, Any], can: bool, tmp_path: Path) -> None:
    assert _can_preload(from_dict({**CONFIG, **changed}, tmp_path).checked(paths=False)) is can


def test_a_canceled_trial_that_ends_well_hides_no_other_notice() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(SCHEMA)
        for table, known in (
            ("trials", {"state": "USER_CANCELED", "started": 0, "ended": 9}),
            ("attempts", {"state": "SUCCEEDED", "started": 0, "ended": 9}),
            ("attributes", {"name": NAME, "value": json.dumps({"startS": 8.0})}),
        ):
            kinds = {row[1]: row[2] for row in database.execute(f"PRAGMA table_info({table})")}
            row = {name: known.get(name, "" if kind == "TEXT" else 0) for name, kind in kinds.items()}
            places = ", ".join("?" * len(row))
            database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", list(row.values()))
        database.execute("INSERT INTO meta VALUES ('notices', ?)", ('["noted at the start"]',))
        found = find_notices(lambda query, *values: database.execute(query, values).fetchall(), ["default"], True)
    assert found[0] == "noted at the start"
    assert found[1].startswith("trial 0 took 9.0 s, 8.0 s of them before")
