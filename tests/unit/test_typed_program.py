"""A user's program is checked by its types: the package says that it has some, and config fields are not Any."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import nnilite
from nnilite import Experiment, Search, space
from nnilite.config import ExperimentConfig, ServiceConfig
from nnilite.records import Trial
from nnilite.search import SearchResult


def objective(parameters: dict[str, float]) -> float:
    return parameters["x"]


def tell(search: Search, trial: Trial) -> None:
    print(search, trial.value)



config = ExperimentConfig("local")
config.trial_command = "python3 trial.py"
config.search_space = {"x": {"_type": "uniform", "_value": [0, 1]}}
config.training_service.use_active_gpu = True
platform: str = config.training_service.platform
config.training_service = [ServiceConfig("local"), ServiceConfig("local")]
config.trial_concurrency = 2
config.max_experiment_duration = "1h"
config.max_trial_number = 20
config.tuner.name = "TPE"
config.tuner.class_args["optimize_mode"] = "maximize"
experiment = Experiment(config)
experiment.config.trial_concurrency = 3
port: int | None = experiment.port
search = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, optimize="minimize", storage="kept")
result: SearchResult = search.run(objective, total=3, callbacks=[tell], progress=True)
best: Trial | None = result.best
search.enqueue({"x": 0.5})
for trial in search.run(objective, trials=3, concurrency=2, on="slurm.yaml", id="mine"):
    print(trial.value, result.reason, len(result))
far: SearchResult = Experiment("local").run(objective, space={"x": space.loguniform(1e-4, 1)}, trials=3)
ended: bool | None = Experiment("local").run(8080)
viewed: Experiment = Experiment.view("mine", non_blocking=True)
resumed: Experiment = Experiment.resume("mine", wait_completion=False)
experiment.resume(8080)
search.tell(search.ask(), state="FAILED")
nnilite.report_final_result(1.0)
"""
WRONG = """
from nnilite import Search
from nnilite.config import ExperimentConfig

config = ExperimentConfig("local")
config.trial_concurrency = "two"
config.tuner.nam = "TPE"
config.search_space = "x"
config.training_service = 3
Search({}).run(len, n_trials=3)
import nnilite
from nnilite import integrations, plot, space
nnilite.report_result(1.0)
space.between(0, 1)
plot.histogram(None)
integrations.TrainerCallback("loss")
"""
KEPT = Path(__file__).resolve().parents[2] / ".mypy_cache" / "a_users_program"
"""What mypy knows of nnilite from the run before: to find it out takes half a minute. It holds it against the files."""
WRONG_LINES = [*range(6, 11), *range(13, 17)]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with both programs, which are checked together, as that costs half."""
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG)
    return tmp_path


@pytest.mark.timeout(300)
def test_a_users_program_is_checked_strictly(programs: Path) -> None:
    options = ["--strict", "--config-file", os.devnull, "--cache-dir", str(KEPT)]
    command = [sys.executable, "-m", "mypy", *options, "right.py", "wrong.py"]
    found = subprocess.run(command, cwd=programs, capture_output=True, text=True, timeout=300).stdout
    assert "right.py" not in found
    assert 'expression has type "str", variable has type "int"' in found
    assert 'has no attribute "nam"' in found
    assert re.findall(r"wrong.py:(\d+): error", found) == [str(line) for line in WRONG_LINES]


@pytest.mark.timeout(300)
def test_pyright_says_the_same(programs: Path) -> None:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "right.py", "wrong.py"]
    done = subprocess.run(command, cwd=programs, capture_output=True, text=True, timeout=300)
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright's own program cannot be had here: {done.stderr.strip()[-200:]}")
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert [(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in found] == [
        ("wrong.py", line) for line in WRONG_LINES
    ], found
