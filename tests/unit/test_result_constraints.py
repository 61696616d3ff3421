"""Constraints on results: what they mean, what a search makes of them, and that every tuner ranks by them."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from nnilite import Search
from nnilite._plugins.lookup import tuner_class
from nnilite.config import from_dict
from nnilite.errors import ConfigError, Conflict
from nnilite.tuner import Tuner
from nnilite.tuning.class_args import construct
from nnilite.tuning.constrained_tuner import constrain
from nnilite.tuning.result_constraints import ResultConstraints, violation

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}
LIMITS = ["latency <= 20"]


def train(parameters: dict[str, float]) -> dict[str, float]:
    """The smaller x, the better; below 0.4 it is too slow."""
    return {"default": parameters["x"], "latency": 20 + 50 * (0.4 - parameters["x"])}


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "it's home"))


@pytest.mark.parametrize(
    ("text", "result", "margin"),
    [
        ("latency <= 20", {"latency": 25}, 0.25),
        ("latency <= 20", {"latency": 20}, 0.0),
        ("latency < 20", {"latency": 20}, pytest.approx(0.0, abs=1e-300)),
        ("latency >= -4", {"latency": -5}, 0.25),
        ("1 <= `val/loss` < 2", {"val/loss": 0.5}, 0.5),
        ("time * cores <= 0", {"time": 2, "cores": 4}, 8.0),
        ("small <= large", {"small": 1, "large": 3}, -2.0),
        ("default <= 2", 1.0, -0.5),
        ("latency <= 20", 1.0, math.inf),
        ("latency <= 20", {"latency": math.nan}, math.inf),
        ("1 / latency <= 20", {"latency": 0}, math.inf),
    ],
)
def test_a_margin_is_the_share_of_the_limit_by_which_a_result_exceeds_it(text: str, result: Any, margin: float) -> None:
    limits = ResultConstraints.parse([text])
    assert limits.margins(result) == (margin,)
    assert bool(limits.violated(result)) is (limits.margins(result)[0] > 0) is bool(violation(limits.margins(result)))


def test_what_breaks_constraints_is_named_with_its_numbers() -> None:
    limits = ResultConstraints.parse(["latency <= 20", "memory < 4e9", "loss < 1"])
    broken = "latency <= 20 (latency 25.5); memory < 4e9 (memory is not reported)"
    assert limits.violated({"latency": 25.5, "loss": 0.5}) == broken


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("latency == 20", "'latency == 20' does not limit a number; write a limit such as 'latency <= 20'"),
        ("latency <= 20 and loss < 1", "does not limit a number"),
        ("latency", "does not limit a number"),
        ("1 < 2", "names no number of a result"),
        ("latency <= '20'", "compares what is not computed from numbers alone"),
        ("latency <=", "is not an expression: invalid syntax"),
        ("sqrt(latency, 2) < 1", "cannot be computed"),
        ("__import__('os').system('true') < 1", "is not allowed"),
    ],
)
def test_what_is_no_limit_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        from_dict(
            {
                "searchSpace": SPACE,
                "trialCommand": "true",
                "trialConcurrency": 1,
                "trainingService": {"platform": "local"},
                "resultConstraints": ["loss < 1", text],
            }
        ).checked(paths=False)
    assert "resultConstraints[1]" in str(caught.value)
    with pytest.raises(ConfigError, match=r"resultConstraints\[0\]"):
        Search(SPACE, result_constraints=[text])


def test_one_text_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must be a list of texts: write \['latency <= 20'\]"):
        Search(SPACE, result_constraints="latency <= 20")  # type: ignore[arg-type]


@pytest.mark.parametrize("storage", [None, "kept"])
def test_the_best_trial_is_a_feasible_one(tmp_path: Path, storage: str | None) -> None:
    def begin() -> Search:
        place = storage and tmp_path / storage
        return Search(SPACE, "Random", "minimize", seed=3, storage=place, result_constraints=LIMITS)

    result = begin().run(train, trials=12)
    assert result.best is not None
    feasible = [trial for trial in result if trial.parameters["x"] >= 0.4]
    assert result.best.value == min((trial.value for trial in feasible), key=lambda value: value["default"])
    assert [trial.violates for trial in feasible] == [""] * len(feasible)
    assert {trial.violates[:13] for trial in result if trial not in feasible} == {"latency <= 20"}
    assert result.to_optuna().best_trial.user_attrs["trial"] == result.best.id
    if storage:
        assert begin().result().best == result.best
        with pytest.raises(Conflict, match="another list of result constraints"):
            Search(SPACE, "Random", "minimize", storage=tmp_path / storage)


def test_where_nothing_is_feasible_the_reason_says_what_is_broken() -> None:
    result = Search(SPACE, "Random", seed=1, result_constraints=["latency < 0"]).run(train, trials=3)
    assert (result.best, result.front) == (None, ())
    assert result.reason.startswith("none is feasible: 3 SUCCEEDED; trial 2 breaks latency < 0 (latency ")


def test_a_result_without_the_number_is_not_feasible_and_warned_of() -> None:
    with pytest.warns(RuntimeWarning, match="breaks latency <= 20 .latency is not reported.*; report each number"):
        result = Search(SPACE, "TPE", result_constraints=LIMITS).run(lambda parameters: parameters["x"], trials=1)
    assert result.best is None


def test_a_front_has_feasible_trials_only() -> None:
    goals = {"default": "minimize", "latency": "minimize"}
    result = Search(SPACE, "NSGA2", goals, seed=0, result_constraints=LIMITS).run(train, trials=20)
    assert result.front
    assert all(trial.parameters["x"] >= 0.4 for trial in result.front)


@pytest.mark.parametrize("name", ["Auto", "TPE", "Evolution"])
def test_tuners_that_weigh_violations_find_the_best_of_a_small_feasible_region(name: str) -> None:
    space = {**SPACE, "y": {"_type": "uniform", "_value": [0, 1]}}

    def narrow(parameters: dict[str, float]) -> dict[str, float]:
        x, y = parameters["x"], parameters["y"]
        return {"default": x + y, "away": max(abs(x - 0.8), abs(y - 0.2))}

    result = Search(space, name, "minimize", seed=1, result_constraints=["away <= 0.1"]).run(narrow, trials=60)
    assert result.best is not None
    assert result.best.value["default"] < 0.9  # 0.7 + 0.1 is the least; random trials come to 0.95


@pytest.mark.parametrize("name", ["Anneal", "ASHA", "Auto", "BOHB", "CMAES", "Evolution", "GP", "NSGA2", "PBT", "TPE"])
def test_every_tuner_takes_results_that_break_constraints_and_replays_them(name: str) -> None:
    needed = {"NSGA2": {"objectives": {"default": "minimize"}}}.get(name, {"optimize_mode": "minimize"})
    tuner, again = (constrain(construct(tuner_class(name), {**needed, "seed": 2}), (), LIMITS) for _ in range(2))
    tuner.update_search_space(SPACE)
    again.update_search_space(SPACE)
    for number in range(14):
        parameters = tuner.generate_parameters(number)
        value: Any = train(parameters) if number != 5 else 0.1
        tuner.receive_trial_result(number, parameters, value)
        tuner.trial_end(number, True)
        again._open(parameters, number)  # type: ignore[attr-defined]
        again.receive_trial_result(number, parameters, value)
        again.trial_end(number, True)
    points = tuner.points  # type: ignore[attr-defined]
    broken = [point for point in points if ResultConstraints.parse(LIMITS).violated(point.value)]
    assert all(point.violation > 0 for point in broken)
    assert tuner.weighs_violations or all(point.loss is None for point in broken)  # type: ignore[attr-defined]
    assert tuner.generate_parameters(14)["x"] == again.generate_parameters(14)["x"]


class Heard(Tuner):
    """A tuner of a user's own: what it was given."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def update_search_space(self, search_space: Any) -> None:
        pass

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        return {"x": 0.1 * parameter_id}

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **kwargs: Any) -> None:
        self.calls.append(("result", parameter_id))

    def trial_end(self, parameter_id: int | None, success: bool, **kwargs: Any) -> None:
        self.calls.append(("end", parameter_id, success))

    def import_data(self, data: list[dict[str, Any]]) -> None:
        self.calls.append(data)


def test_for_a_tuner_of_another_kind_a_trial_that_breaks_one_has_failed() -> None:
    heard = Heard()
    tuner = constrain(heard, (), LIMITS)
    tuner.update_search_space(SPACE)
    for number in (1, 9):
        tuner.receive_trial_result(number, {"x": 0.1 * number}, train({"x": 0.1 * number}))
        tuner.trial_end(number, True)
    good = {"parameter": {"x": 0.5}, "value": {"default": 0.5, "latency": 1}}
    tuner.import_data([good, {"parameter": {"x": 0.5}, "value": 0.5}])
    assert heard.calls == [("end", 1, False), ("result", 9), ("end", 9, True), [good]]


def test_an_advisor_cannot_rank_by_them() -> None:
    advisor = Heard()
    advisor.hear_intermediate = print  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="resultConstraints: an advisor cannot obey them"):
        constrain(advisor, (), LIMITS)


def test_a_copy_of_a_search_knows_its_constraints() -> None:
    search = Search(SPACE, "Evolution", "minimize", seed=4, result_constraints=LIMITS)
    search.run(train, trials=20)
    copy = pickle.loads(pickle.dumps(search))
    assert [trial.parameters for trial in copy.run(train, trials=2)] == [
        trial.parameters for trial in search.run(train, trials=2)
    ]
