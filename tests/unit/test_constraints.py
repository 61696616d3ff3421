"""Constraints between parameters, first trials, and that every tuner obeys."""

from __future__ import annotations

import random

import pytest

from nnilite import Search
from nnilite._plugins.lookup import tuner_class
from nnilite.config import from_dict
from nnilite.errors import ConfigError, NoMoreTrialError, SpaceError
from nnilite.space import Constraints, SearchSpace
from nnilite.tuner import Tuner
from nnilite.tuning.class_args import construct
from nnilite.tuning.constrained_tuner import constrain

SPACE = {
    "x": {"_type": "uniform", "_value": [0, 1]},
    "y": {"_type": "uniform", "_value": [0, 1]},
    "kind": {"_type": "choice", "_value": ["a", "b"]},
    "net": {
        "_type": "choice",
        "_value": [{"_name": "deep", "width": {"_type": "randint", "_value": [1, 9]}}, {"_name": "flat"}],
    },
}
GOOD = {"x": 0.1, "y": 0.2, "kind": "a", "net": {"_name": "flat"}}
RULES = ("x + y <= 0.5", "kind != 'b' or x > 0.05", "net.width % 2 == 0")


def rules(*texts: str) -> Constraints:
    return Constraints.parse(texts, SearchSpace.parse(SPACE))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("x + y <= 0.3000001", True),
        ("0 < x < y < 1", True),
        ("-x > 0", False),
        ("kind in ('a', 'c') and not kind == 'b'", True),
        ("net == 'flat'", True),
        ("net.width > 100", True),  # it does not count here
        ("x > 1 if kind == 'b' else y > 0", True),
        ("max(x, y) == 0.2 and round(log10(x)) == -1", True),
        ("round(1234, -2) == 1200 and round(x + 0.04, 1) == x", True),
        ("round(7, -999999999) == 0", True),  # at once
        ("1 / (x - x) > 0", False),
        ("9 ** 9 ** 9 > x", False),
    ],
)
def test_an_expression_is_computed(text, holds):
    assert (rules(text).violated(GOOD) is None) is holds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x +", "is not an expression: .*; write for example"),
        ("x > 0 && y > 0", "write and for &&"),
        ("x > 0 || y > 0", r"write or for \|\|"),
        ("!(x > 0)", "write not for !"),
        ("x = 0.5", "write == for =$"),
        ("z > 1", "there is no parameter 'z'; there are kind, net, net.width, x, y"),
        ("x.__class__ == 1", "there is no parameter 'x.__class__'"),
        ("__import__('os').system('true')", "is not allowed; use numbers"),
        ("(lambda: 1)()", "is not allowed"),
        ("[x for x in (1,)] == 1", "is not allowed"),
        ("max(*kind) > 1", "is not allowed"),
        ("f'{x}' == 'a'", "is not allowed"),
        ("x[0] > 1", "is not allowed"),
        ("-" * 60 + "x > 1", "nested more than 50 deep"),
        ("x > " + "1" * 3000, "at most 2000 are read"),
    ],
)
def test_what_is_no_constraint_is_refused_with_its_reason(text, reason):
    with pytest.raises(SpaceError, match=reason):
        rules(text)


def test_a_text_is_not_multiplied_until_the_memory_is_full():
    with pytest.raises(SpaceError, match="not both numbers"):
        rules("kind * 1000000000 == 'a'").violated(GOOD)


ODD_NAMES = {
    "net.width": {"_type": "randint", "_value": [1, 9]},
    "lambda": {"_type": "uniform", "_value": [0, 1]},
    "my-rate": {"_type": "uniform", "_value": [0, 1]},
    "kind": {"_type": "choice", "_value": ["adam", "`my-rate`"]},
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("net.width > 5", False),
        ("`net.width` < 5 and `lambda` + `my-rate` <= 0.7", True),
        ("`lambda` > 0.5", False),
        ("kind == '`my-rate`' and `my-rate` == 0.5", True),
    ],
)
def test_any_name_can_be_written(text, holds):
    found = Constraints.parse([text], SearchSpace.parse(ODD_NAMES))
    parameters = {"net.width": 4, "lambda": 0.2, "my-rate": 0.5, "kind": "`my-rate`"}
    assert (found.violated(parameters) is None) is holds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lambda < 1", "is not an expression: .*; write `lambda` for the name lambda"),
        ("my-rate < 1", "no parameter 'my'; there are kind, `lambda`, `my-rate`, net.width"),
        ("kind in ('ada')", r"`in` needs a list; write \['ada'\] for 'ada'"),
        ("`my-rate < 1", "is not an expression"),
    ],
)
def test_names_and_lists_that_python_reads_otherwise_are_told(text, reason):
    with pytest.raises(SpaceError, match=reason):
        Constraints.parse([text], SearchSpace.parse(ODD_NAMES))


def test_a_constraint_that_only_some_options_break_is_refused_at_the_start():
    space = SearchSpace.parse({"n": {"_type": "choice", "_value": [*range(19), "auto"]}})
    with pytest.raises(SpaceError, match="'n < 30' cannot be computed"):
        Constraints.parse(["n < 30"], space).check(space)


@pytest.mark.parametrize("name", ["Random", "GridSearch", "TPE"])
def test_a_space_in_which_nothing_satisfies_them_is_no_update(name):
    tuner = constrain(construct(tuner_class(name), {}), ["n <= 2"])
    tuner.update_search_space({"n": {"_type": "choice", "_value": [1, 2]}})
    with pytest.raises(SpaceError, match="none of 10,000"):
        tuner.update_search_space({"n": {"_type": "choice", "_value": [5, 6]}})
    assert tuner.generate_parameters(0)["n"] <= 2


def test_constraints_that_nothing_satisfies_are_named():
    with pytest.raises(SpaceError, match=r"none of 10,000 random sets of parameters satisfies 'x > 2'; loosen"):
        rules("x > 2").sample(SearchSpace.parse(SPACE), random.Random(0))


@pytest.mark.parametrize("name", ["Auto", "TPE", "Random", "Evolution", "Anneal", "QMC", "Hyperband", "BOHB", "ASHA"])
def test_every_tuner_obeys(name):
    found = Search(SPACE, name, "minimize", 1, constraints=RULES).run(lambda p: -p["x"] - p["y"], trials=25).trials
    broken = [trial.parameters for trial in found if rules(*RULES).violated(trial.parameters)]
    assert len(found) == 25
    assert not broken


def test_the_default_tuner_finds_the_best_along_a_constraint():
    search = Search(SPACE, optimize="minimize", seed=1, constraints=["x + y <= 0.5"])
    found = search.run(lambda p: (p["x"] - 0.6) ** 2 + (p["y"] - 0.4) ** 2 + (p["kind"] == "b"), trials=16)
    assert found.best.value < 0.13  # 0.125 is the smallest on the line; of 100 random ones it is 0.1315


def test_a_finite_space_ends_when_all_that_satisfies_was_tried():
    small = {"a": {"_type": "choice", "_value": [1, 2, 3]}, "b": {"_type": "choice", "_value": [1, 2, 3]}}
    assert len(Search(small, constraints=["a < b"], seed=1).run(lambda p: p["a"], trials=20).trials) == 3


@pytest.mark.parametrize("name", ["TPE", "Random", "Evolution"])
def test_constraints_that_few_points_satisfy_do_not_end_a_search(name, monkeypatch):
    monkeypatch.setattr("nnilite.space.constraints._TRIES", 20)
    monkeypatch.setattr("nnilite.tuning.learning._CONSTRAINED_TRIES", 1)
    space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    found = Search(space, name, "minimize", 6, constraints=["x < 0.1"]).run(lambda p: p["x"], trials=25).trials
    assert len(found) == 25
    assert all(trial.parameters["x"] < 0.1 for trial in found)


def test_a_finite_space_is_tried_point_by_point_where_chance_finds_none(monkeypatch):
    monkeypatch.setattr("nnilite.space.constraints._TRIES", 20)
    space = {"a": {"_type": "randint", "_value": [0, 40]}}
    run = Search(space, "Random", "minimize", 1, constraints=["a >= 37"]).run(lambda p: p["a"], trials=20)
    assert sorted(trial.parameters["a"] for trial in run.trials) == [37, 38, 39]


def test_a_tuner_without_our_base_class_is_asked_again():
    class Count(Tuner):
        ended: list[int] = []

        def update_search_space(self, search_space):
            self.next = 0

        def generate_parameters(self, parameter_id, **kwargs):
            self.next += 1
            return {"n": self.next}

        def trial_end(self, parameter_id, success, **kwargs):
            self.ended.append(self.next)

    tuner = constrain(Count(), ["n % 3 == 0"])
    tuner.update_search_space({"n": {"_type": "randint", "_value": [0, 99]}})
    assert [tuner.generate_parameters(number)["n"] for number in range(3)] == [3, 6, 9]
    assert Count.ended == [1, 2, 4, 5, 7, 8]


def test_a_tuner_that_never_obeys_is_not_asked_for_ever():
    tuner = constrain(construct(tuner_class("GridSearch"), {}), ["n > 1"])
    tuner.update_search_space({"n": {"_type": "choice", "_value": [1, 2]}})
    assert tuner.generate_parameters(0) == {"n": 2}
    with pytest.raises(NoMoreTrialError):
        tuner.generate_parameters(0)


def config(**fields):
    return from_dict(
        {
            "searchSpace": SPACE,
            "trialCommand": "true",
            "trialConcurrency": 1,
            "trainingService": {"platform": "local"},
            **fields,
        }
    ).checked()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"constraints": ["z > 1"]}, r"constraints\[0\].*there is no parameter 'z'"),
        ({"constraints": ["x > 2"]}, "constraints.*none of 10,000"),
        ({"firstTrials": [GOOD, {"x": 1}]}, r"firstTrials\[1\].*is not in the search space: y is missing"),
        ({"firstTrials": [{**GOOD, "x": 10**400}]}, r"firstTrials\[0\].*is not in the search space: x: 10+"),
        ({"firstTrials": [GOOD], "constraints": ["x > 0.5"]}, r"firstTrials\[0\].*violates the constraint 'x > 0.5'"),
        ({"firstTrials": [GOOD, GOOD], "maxTrialNumber": 1}, "firstTrials.*has 2 trials, but maxTrialNumber is 1"),
    ],
)
def test_bad_constraints_and_first_trials_are_refused_with_their_place(fields, reason):
    with pytest.raises(ConfigError, match=reason):
        config(**fields)


def test_good_ones_are_kept():
    found = config(firstTrials=[GOOD], constraints=list(RULES))
    assert (found.first_trials, found.constraints) == ([GOOD], list(RULES))
