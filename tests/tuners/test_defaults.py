"""Defaults of parameters: tried first, near to which tuners look for a while, and from which they recover."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nnilite import space as made
from nnilite._plugins.lookup import tuner_class
from nnilite.config import from_dict
from nnilite.errors import SpaceError
from nnilite.space import SearchSpace
from nnilite.tuner import Call, CallKind
from nnilite.tuning.class_args import construct
from nnilite.tuning.cube import Cube
from nnilite.tuning.prior import Prior, falling_share

MIXED = {
    "rate": {"_type": "loguniform", "_value": [1e-5, 0.1], "_default": 0.001},
    "size": {"_type": "qrandint", "_value": [8, 64, 8], "_default": 16},
    "free": {"_type": "uniform", "_value": [0, 1]},
    "layer": {
        "_type": "choice",
        "_value": [{"_name": "none"}, {"_name": "conv", "width": {"_type": "choice", "_value": [3, 5], "_default": 5}}],
        "_default": "conv",
    },
}
FIRST = {"rate": 0.001, "size": 16, "layer": {"_name": "conv", "width": 5}}


def bowl(default: float | None) -> dict:
    told = {} if default is None else {"_default": default}
    return {f"x{k}": {"_type": "uniform", "_value": [-5, 5], **told} for k in range(3)}


def losses(name: str, space: dict, seed: int, trials: int) -> list[float]:
    tuner = construct(tuner_class(name), {"optimize_mode": "minimize", "seed": seed})
    tuner.update_search_space(space)
    found = []
    for number in range(trials):
        parameters = tuner.generate_parameters(number)
        found.append(sum((x - 1.3) ** 2 for x in parameters.values()))
        tuner.receive_trial_result(number, parameters, found[-1])
    return found


@pytest.mark.parametrize(
    "name", ["Auto", "Random", "TPE", "Evolution", "Anneal", "QMC", "SMAC", "Hyperband", "BOHB", "ASHA"]
)
def test_the_first_trial_has_the_defaults_whichever_tuner_proposes_it(name):
    tuner = construct(tuner_class(name), {"seed": 1})
    tuner.update_search_space(MIXED)
    first = tuner.generate_parameters(0)
    assert {key: first[key] for key in FIRST} == FIRST
    assert 0 <= first["free"] <= 1
    for number in range(1, 30):
        assert tuner.space.contains({k: v for k, v in tuner.generate_parameters(number).items() if k in MIXED}) is None


@pytest.mark.parametrize("name", ["Auto", "TPE"])
def test_good_defaults_save_trials_and_wrong_ones_are_recovered_from(name):
    good, none = ([min(losses(name, bowl(default), seed, 12)) for seed in range(3)] for default in (1.0, None))
    assert np.mean(good) < np.mean(none) / 2
    wrong = losses(name, bowl(-4.5), 1, 45)
    assert wrong[0] > 100
    assert min(wrong) < (0.1 if name == "Auto" else 2)


def test_fewer_and_fewer_proposals_are_drawn_around_defaults():
    shares = [falling_share(points) for points in range(50)]
    assert shares[0] == 0.5
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.05


def test_a_replay_leans_to_the_defaults_as_the_search_did():
    old, calls = construct(tuner_class("TPE"), {"seed": 5}), [Call(CallKind.SPACE, value=MIXED)]
    old.update_search_space(MIXED)
    for number in range(15):
        calls.append(Call(CallKind.GENERATE, number, parameters=old.generate_parameters(number)))
        calls.append(Call(CallKind.RESULT, number, parameters=calls[-1].parameters, value=calls[-1].parameters["free"]))
        old.apply(calls[-1])
    again = construct(tuner_class("TPE"), {"seed": 5})
    again.replay(calls)
    expected = [old.generate_parameters(number) for number in range(15, 25)]
    assert [again.generate_parameters(number) for number in range(15, 25)] == expected


def test_draws_are_distributed_as_the_density_says():
    space = SearchSpace.parse(MIXED)
    prior, cube, rng = Prior(space), Cube(space), random.Random(0)
    rows = cube.positions([prior.draw(rng) for _ in range(2000)])
    near = np.abs(rows[:, 0] - 0.5) < 0.2
    assert 0.6 < near.mean() < 0.75
    density = prior.log_density(
        cube, cube.positions([prior.replace({}, 0, 0.0, rng), {**prior.draw(rng), ("rate",): 0.1}])
    )
    assert density[0] == pytest.approx(0, abs=0.3)
    assert density[1] < -1


@pytest.mark.parametrize(
    ("name", "default", "words"),
    [
        ("rate", 2, r"rate\._default: must be a number from 1e-05 to 0.1, not 2"),
        ("size", 17, r"size\._default: must be a multiple of 8 from 8 to 64, not 17"),
        ("layer", "deep", r"layer\._default: must be one of the options named 'none', 'conv', not 'deep'"),
    ],
)
def test_a_default_that_the_parameter_cannot_have_is_refused(name, default, words):
    with pytest.raises(SpaceError, match=words):
        SearchSpace.parse({**MIXED, name: {**MIXED[name], "_default": default}})


def test_a_program_and_a_config_give_defaults_too():
    assert made.loguniform(1e-5, 0.1, default=0.001) == MIXED["rate"]
    config = from_dict(
        {
            "searchSpace": MIXED,
            "trialCommand": "true",
            "trialConcurrency": 1,
            "trainingService": {"platform": "local"},
        }
    ).checked()
    assert config.search_space["rate"]["_default"] == 0.001
