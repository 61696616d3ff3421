"""NNI's DNGO and SMAC with the models that they need, beside ours: pybnn on torch, and NNI's own build of SMAC."""

from __future__ import annotations

import json
import math
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_comparison import DRAWS, SPACE, Answers, count_ends, find_far_columns
from real_nni import need_python_with_models

pytestmark = [pytest.mark.process, pytest.mark.real, pytest.mark.long, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
HILL = {
    "share": {"_type": "uniform", "_value": [0, 1]},
    "rate": {"_type": "loguniform", "_value": [0.0001, 1]},
    "layers": {"_type": "choice", "_value": [1, 2, 4]},
}


@pytest.fixture(scope="module")
def torch() -> str:
    """The folder of torch for tests."""
    found = subprocess.run([ROOT / "scripts" / "test-torch"], capture_output=True, text=True, timeout=600)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    return found.stdout.strip()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, torch: str) -> Iterator[Answers]:
    python = need_python_with_models()
    known = subprocess.run([python, "-c", "import torch"], env={"PYTHONPATH": torch}, capture_output=True, timeout=300)
    if known.returncode:
        pytest.skip(f"{torch} is for another version of Python")
    found = Answers(python, tmp_path_factory.mktemp("answers"), torch)
    yield found
    found.close()


def measure(parameters: dict[str, Any]) -> float:
    """Return the height of a hill whose top, 0, is at 0.7, 0.01 and 4."""
    slope = (parameters["share"] - 0.7) ** 2 + (math.log10(parameters["rate"]) + 2) ** 2 / 4
    return -slope - (0 if parameters["layers"] == 4 else 0.3)


def draw_results(sign: int) -> list[dict[str, Any]]:
    """Return forty random points of the hill with their results."""
    rng = random.Random(3)
    points = [
        {"share": rng.random(), "rate": 10 ** rng.uniform(-4, 0), "layers": rng.choice([1, 2, 4])} for _ in range(40)
    ]
    return [{"parameter": one, "value": sign * measure(one)} for one in points]


def test_smac_begins_with_draws_that_are_distributed_as_nnis_but_for_steps(answers: Answers) -> None:
    """Of the types that NNI's SMAC takes, and without blanks in the names, at which it fails."""
    space = {name: SPACE[name] for name in ("texts", "numbers", "randint", "uniform", "quniform", "loguniform")}
    theirs, ours = answers.ask("draw", "SMAC", [], space, DRAWS)
    assert (len(theirs), len(ours)) == (DRAWS, DRAWS)
    assert set(find_far_columns(theirs, ours, space)) <= {"quniform"}
    assert count_ends(theirs, ours) == pytest.approx([2 / 5, 1 / 4], abs=0.05)


@pytest.mark.parametrize("repeats", [True, False])
def test_smac_proposes_each_once_where_nnis_repeats_unless_it_is_asked_not_to(answers: Answers, repeats: bool) -> None:
    space = {"x": {"_type": "choice", "_value": [1, 2, 3]}}
    theirs, ours = answers.ask("exhaust", "SMAC", ["maximize", not repeats], space, 8)
    assert (len(theirs) == 8, theirs[-1] == "NoMoreTrialError") == (repeats, not repeats)
    assert (sorted(one["x"] for one in ours[:-1]), ours[-1]) == ([1, 2, 3], "NoMoreTrialError")


@pytest.mark.parametrize("mode", ["maximize", "minimize"])
@pytest.mark.parametrize("name", ["SMAC", "DNGO"])
def test_after_the_same_results_ours_proposes_better_points(answers: Answers, name: str, mode: str) -> None:
    sign = 1 if mode == "maximize" else -1
    theirs, ours = answers.ask("draw_after", name, [mode], HILL, draw_results(sign), 20)
    means = [sum(map(measure, points)) / len(points) for points in (theirs, ours)]
    assert means[1] > means[0], json.dumps([theirs, ours])
