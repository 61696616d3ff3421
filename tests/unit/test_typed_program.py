"""A user's program is checked by its types: the package says that it has some, and config fields are not Any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import nnilite
from nnilite import Experiment, Search
from nnilite.config import ExperimentConfig


def objective(parameters: dict[str, float]) -> float:
    return parameters["x"]


config = ExperimentConfig("local")
config.trial_command = "python3 trial.py"
config.trial_concurrency = 2
config.max_experiment_duration = "1h"
config.max_trial_number = 20
config.tuner.name = "TPE"
config.tuner.class_args["optimize_mode"] = "maximize"
experiment = Experiment(config)
experiment.config.trial_concurrency = 3
port: int | None = experiment.port
result = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, optimize="minimize").run(objective, trials=3)
nnilite.report_final_result(1.0)
"""
WRONG = """
from nnilite.config import ExperimentConfig

config = ExperimentConfig("local")
config.trial_concurrency = "two"
config.tuner.nam = "TPE"
"""


def mypy(folder: Path, program: str) -> str:
    (folder / "program.py").write_text(program)
    options = ["--strict", "--config-file", os.devnull, "--cache-dir", str(folder / "kept")]
    command = [sys.executable, "-m", "mypy", *options]
    done = subprocess.run([*command, "program.py"], cwd=folder, capture_output=True, text=True, timeout=300)
    return done.stdout


@pytest.mark.timeout(300)
def test_a_users_program_is_checked_strictly(tmp_path: Path) -> None:
    assert mypy(tmp_path, PROGRAM).startswith("Success"), mypy(tmp_path, PROGRAM)
    found = mypy(tmp_path, WRONG)
    assert 'expression has type "str", variable has type "int"' in found
    assert 'has no attribute "nam"' in found
