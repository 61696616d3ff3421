"""The same name does the same thing: our tuners and assessors beside those of NNI 3.0, in an environment of its own.

Where ours differ on purpose, docs/explanation/what-differs-from-nni.md says why, and a test here shows the difference.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nni_answers
from learning_curves import SHAPES
from nnilite._keeper import SHIM
from real_nni import need_python

pytestmark = [pytest.mark.process, pytest.mark.real, pytest.mark.timeout(900)]
DRAWS = 2000
CHOICES = ["a", "b", "c", "d"]
NUMBERS = {
    "numbers": {"_type": "choice", "_value": [1, 2, 4, 8]},
    "randint": {"_type": "randint", "_value": [-2, 9]},
    "uniform": {"_type": "uniform", "_value": [-1.0, 3.0]},
    "quniform": {"_type": "quniform", "_value": [0.0, 10.0, 2.5]},
    "quniform with odd ends": {"_type": "quniform", "_value": [2.0, 10.0, 5.0]},
    "loguniform": {"_type": "loguniform", "_value": [0.0001, 10.0]},
    "qloguniform": {"_type": "qloguniform", "_value": [1.0, 100.0, 3.0]},
}
SPACE = {
    **NUMBERS,
    "texts": {"_type": "choice", "_value": CHOICES},
    "normal": {"_type": "normal", "_value": [1.0, 2.0]},
    "qnormal": {"_type": "qnormal", "_value": [1.0, 5.0, 2.0]},
    "lognormal": {"_type": "lognormal", "_value": [0.0, 1.0]},
    "qlognormal": {"_type": "qlognormal", "_value": [0.0, 1.0, 0.5]},
}
STEPPED = ("quniform", "quniform with odd ends", "qloguniform")
FEW = {"Random": [0], "TPE": ["minimize", 0, {"n_startup_jobs": DRAWS + 1}], "Evolution": ["maximize", DRAWS]}


class Answers:
    """Asks NNI's program and ours the same questions."""

    def __init__(self, python: Path) -> None:
        self._theirs = self._start(str(python), {})
        self._ours = self._start(sys.executable, {"PYTHONPATH": str(SHIM)})

    @staticmethod
    def _start(python: str, more: dict[str, str]) -> subprocess.Popen[str]:
        variables = {**os.environ, **more}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen([python, nni_answers.__file__], **pipes, text=True, env=variables)

    def ask(self, question: str, *arguments: Any) -> tuple[Any, Any]:
        """Return NNI's answer and ours."""
        for program in (self._theirs, self._ours):
            assert program.stdin
            program.stdin.write(json.dumps([question, *arguments]) + "\n")
            program.stdin.flush()
        return self._read(self._theirs), self._read(self._ours)

    @staticmethod
    def _read(program: subprocess.Popen[str]) -> Any:
        assert program.stdout
        for line in program.stdout:
            if line.startswith(nni_answers.MARK):  # NNI prints, too
                return json.loads(line.removeprefix(nni_answers.MARK))
        raise AssertionError(f"{program.args} has ended")

    def close(self) -> None:
        for program in (self._theirs, self._ours):
            program.communicate(timeout=60)


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    found = Answers(need_python())
    yield found
    found.close()


# ------------------------------------------------------------ constructors

OTHER_DEFAULTS = {
    "Random": {"optimize_mode": "maximize"},  # has no effect
    "GridSearch": {"optimize_mode": "maximize"},  # has no effect
    "Evolution": {"population_size": 16},
    "GP": {"selection_num_warm_up": 2000},
}
NOT_INSTALLED = ("DNGO", "SMAC")
"""NNI's need packages that no present Python installs: pybnn, and NNI's own builds of SMAC and ConfigSpace."""


@pytest.mark.parametrize("name", sorted({**nni_answers.TUNERS, **nni_answers.ASSESSORS}.keys() - set(NOT_INSTALLED)))
def test_constructors_take_nnis_arguments_in_the_same_order_with_the_same_defaults(answers: Answers, name: str) -> None:
    theirs, ours = answers.ask("list_arguments", name)
    other = OTHER_DEFAULTS.get(name, {})
    assert ours[: len(theirs)] == [[known, other.get(known, default)] for known, default in theirs]
    assert {known for known, _ in ours[len(theirs) :]} <= {"seed", "optimize_mode"}


# ------------------------------------------------------------ assessors


def make_curves(seed: int) -> list[list[float]]:
    rng = random.Random(seed)
    return [[rng.random() + step * rng.random() / 10 for step in range(rng.randint(4, 20))] for _ in range(60)]


@pytest.mark.parametrize("arguments", [["maximize"], ["minimize"], ["maximize", 5], ["minimize", 1]], ids=str)
def test_medianstop_gives_nnis_verdict_at_each_result(answers: Answers, arguments: list[Any]) -> None:
    theirs, ours = answers.ask("judge", "Medianstop", arguments, make_curves(7), [3, 11, 20])
    assert ours == theirs
    assert any(False in verdicts for verdicts in theirs)


def test_medianstop_judges_the_twenty_shapes_as_nnis_but_for_what_rounding_makes(answers: Answers) -> None:
    # Multiples of 1/64 have averages without rounding.
    known = [[round(64 * value) / 64 for value in shape] for name, shape in SHAPES.items() if "NaN" not in name]
    theirs, ours = answers.ask("judge", "Medianstop", [], known, [])
    assert ours == theirs
    level = [0.1] * 3  # whose averages are not 0.1 in floating point
    theirs, ours = answers.ask("judge", "Medianstop", [], [level, level], [])
    assert (theirs[1], ours[1]) == ([True, True, False], [True, True, True])


def test_curvefitting_stops_what_nnis_stops_on_smooth_curves(answers: Answers) -> None:
    """NNI's has no forecast for some curves in some runs, as its fits turn on how numbers are rounded."""
    best = [0.9 - 0.7 / (k + 1) for k in range(10)]
    poor = [[0.4 * (0.9 - 0.7 / (k + 1) ** bend) for k in range(10)] for bend in (0.5, 1, 1.5)]
    better = [1.2 * value for value in best]
    once = [20, 8, 0.95, 20]  # one judgement of each trial, as NNI's takes long
    theirs, ours = answers.ask("judge", "Curvefitting", once, [best, *poor, better], [])
    goes_on, stopped = [True] * 10, [True] * 7 + [False] + [True] * 2
    assert ours == [goes_on, *[stopped] * 3, goes_on]
    assert (theirs[0], theirs[-1]) == (goes_on, goes_on)
    assert stopped in theirs[1:-1]


def test_curvefitting_stops_a_poor_curve_of_which_nnis_has_no_forecast(answers: Answers) -> None:
    best = [0.9 * (1 - 0.7 ** (k + 1)) for k in range(10)]
    _, ours = answers.ask("judge", "Curvefitting", [20, 10], [best, [0.4 * value for value in best]], [])
    assert ours[1][9] is False, "NNI's has a forecast in some runs only, as it draws at random"


# ------------------------------------------------------------ draws


def find_far_columns(theirs: list[Any], ours: list[Any], space: dict[str, Any]) -> dict[str, float]:
    """By name, the columns whose distributions differ, by the test of Kolmogorov and Smirnov."""
    from scipy.stats import ks_2samp

    far = {}
    for name, about in space.items():
        columns = [[_as_number(about, one[name]) for one in draws] for draws in (theirs, ours)]
        chance = ks_2samp(*columns, method="asymp").pvalue
        if chance < 1e-4:
            far[name] = chance
    return far


def _as_number(about: Any, value: Any) -> float:
    return float(about["_value"].index(value)) if about["_type"] == "choice" else float(value)


@pytest.mark.parametrize("name", ["Random", "Evolution"])
def test_two_thousand_draws_of_each_kind_are_distributed_as_nnis(answers: Answers, name: str) -> None:
    theirs, ours = answers.ask("draw", name, FEW[name], SPACE, DRAWS)
    assert (len(theirs), len(ours)) == (DRAWS, DRAWS)
    assert find_far_columns(theirs, ours, SPACE) == {}


@pytest.mark.long  # hyperopt takes minutes for so many
def test_anneal_begins_with_draws_that_are_distributed_as_nnis(answers: Answers) -> None:
    theirs, ours = answers.ask("draw", "Hyperopt", ["anneal"], SPACE, DRAWS)
    assert find_far_columns(theirs, ours, SPACE) == {}


@pytest.mark.long
def test_anneal_goes_on_as_nnis_from_the_same_results(answers: Answers) -> None:
    """Where NNI's keeps the type: what-differs-from-nni.md names the others."""
    space = {name: SPACE[name] for name in ("uniform", "loguniform", "texts")}
    values = [(-0.9, 5.0, "a"), (2.9, 0.0002, "c"), (0.3, 0.1, "b")]  # near to both ends
    results = [
        {"parameter": dict(zip(space, one, strict=True)), "value": loss} for loss, one in enumerate(values, start=1)
    ]
    theirs, ours = answers.ask("draw_after", "Hyperopt", ["anneal"], space, results, 500)
    assert find_far_columns(theirs, ours, space) == {}


def test_gp_begins_with_draws_that_are_distributed_as_nnis(answers: Answers) -> None:
    theirs, ours = answers.ask("draw", "GP", [], NUMBERS, DRAWS)
    assert find_far_columns(theirs, ours, NUMBERS) == {}


@pytest.mark.long  # both go through all trials that run at each draw
def test_tpe_draws_as_nnis_but_for_steps_which_are_equally_likely(answers: Answers) -> None:
    theirs, ours = answers.ask("draw", "TPE", FEW["TPE"], SPACE, DRAWS)
    assert set(find_far_columns(theirs, ours, SPACE)) <= set(STEPPED)
    ends = [sum(one["quniform"] in (0.0, 10.0) for one in draws) / DRAWS for draws in (theirs, ours)]
    assert ends == pytest.approx([1 / 4, 2 / 5], abs=0.05)  # of five steps, two are ends


@pytest.mark.parametrize(
    ("name", "arguments", "repeats"),
    [
        ("Random", [], False),
        ("TPE", [], False),
        ("Evolution", ["maximize", 4], True),
        ("GP", [], True),
        ("Metis", [], True),
        ("Hyperopt", ["anneal"], True),
    ],
)
def test_a_finite_space_ends_where_some_of_nnis_repeat(
    answers: Answers, name: str, arguments: list[Any], repeats: bool
) -> None:
    theirs, ours = answers.ask("exhaust", name, arguments, {"x": {"_type": "choice", "_value": [1, 2, 3]}}, 8)
    assert (len(theirs) == 8, theirs[-1] == "NoMoreTrialError") == (repeats, not repeats)
    assert (sorted(ours[:-1]), ours[-1]) == ([1, 2, 3], "NoMoreTrialError")


# ------------------------------------------------------------ schedules


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Hyperband", []),
        ("Hyperband", ["maximize", 27, 3]),
        ("Hyperband", ["minimize", 60, 3]),
        ("Hyperband", ["maximize", 16, 2, "serial"]),
        ("BOHB", ["maximize", 1, 9, 3]),
        ("BOHB", ["maximize", 1, 81, 3]),
        ("BOHB", ["minimize", 2, 50, 3]),
    ],
    ids=str,
)
def test_budgets_come_in_nnis_order_and_the_best_go_on(answers: Answers, name: str, arguments: list[Any]) -> None:
    theirs, ours = answers.ask("follow_schedule", name, arguments, 120)
    assert [budget for budget, _ in ours] == [budget for budget, _ in theirs]
    assert [_find_repeats(trials) for trials in (theirs, ours)] == [_find_repeats(theirs)] * 2


def _find_repeats(trials: list[list[float]]) -> list[bool]:
    """Whether the parameters of each trial have run before, with a smaller budget."""
    values = [value for _, value in trials]
    return [value in values[:place] for place, value in enumerate(values)]
