"""Spaces at the edge of what a type of parameter allows, as NNI's tests of its tuners have them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from nnilite._plugins.lookup import tuner_class
from nnilite.errors import NoMoreTrialError, SpaceError
from nnilite.space import SearchSpace
from nnilite.tuning.class_args import construct

ODD = {
    "choice of kinds": {"_type": "choice", "_value": [0.3, "cat", 1, None]},
    "choice of one": {"_type": "choice", "_value": [1]},
    "randint of one": {"_type": "randint", "_value": [10, 11]},
    "uniform of one": {"_type": "uniform", "_value": [99.9, 99.9]},
    "quniform with a step beyond its ends": {"_type": "quniform", "_value": [-5.5, -0.5, 6]},
    "loguniform of one": {"_type": "loguniform", "_value": [1, 1]},
    "qloguniform from near 0": {"_type": "qloguniform", "_value": [0.001, 100, 1]},
    "qloguniform of one": {"_type": "qloguniform", "_value": [2, 2, 1]},
    "fine qnormal": {"_type": "qnormal", "_value": [-1.5, 5.0, 0.1]},
    "wide lognormal": {"_type": "lognormal", "_value": [-1.0, 5.0]},
    "wide qlognormal": {"_type": "qlognormal", "_value": [-1.5, 5.0, 0.1]},
}
TUNERS: dict[str, dict[str, Any]] = {
    "Random": {},
    "TPE": {},
    "GridSearch": {},
    "Evolution": {"population_size": 4},
    "Anneal": {},
    "PBT": {"population_size": 4},
}
COUNT = 12
COUNTS = {"choice of kinds": 4, "quniform with a step beyond its ends": 2}
"""How many parameters some of these spaces hold; those of one value hold one."""


def explore(name: str, space: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Return the parameters of trials that succeed one by one: as many as there are, and at most `COUNT`."""
    more = {"all_checkpoint_dir": str(folder)} if name == "PBT" else {}
    tuner, rng, found = construct(tuner_class(name), {**TUNERS[name], **more}), random.Random(0), []
    tuner.update_search_space(space)
    for number in range(COUNT):
        try:
            parameters = tuner.generate_parameters(number)
        except NoMoreTrialError:
            break
        found.append({key: value for key, value in parameters.items() if not key.endswith("_checkpoint_dir")})
        tuner.receive_trial_result(number, parameters, rng.uniform(-100, 100))
        tuner.trial_end(number, True)
    return found


@pytest.mark.parametrize("name", TUNERS)
@pytest.mark.parametrize("kind", ODD)
def test_a_space_at_the_edge_gives_parameters_within_it(name: str, kind: str, tmp_path: Path) -> None:
    space = {kind: ODD[kind]}
    found = explore(name, space, tmp_path)
    fewest = 1 if "of one" in kind else COUNTS.get(kind, COUNT)
    # A tuner may propose the same again, but need not.
    assert len(found) in (fewest, COUNT)
    assert [SearchSpace.parse(space).contains(parameters) for parameters in found] == [None] * len(found)


@pytest.mark.parametrize("name", TUNERS)
def test_all_of_them_together_give_parameters_within_them(name: str, tmp_path: Path) -> None:
    found = explore(name, ODD, tmp_path)
    assert [SearchSpace.parse(ODD).contains(parameters) for parameters in found] == [None] * COUNT


LAYER = {"layer_choice": ["conv", "pool"], "optional_inputs": ["out1"], "optional_input_size": 1}


@pytest.mark.parametrize("name", TUNERS)
@pytest.mark.parametrize(
    ("parameter", "told"),
    [
        ({"_type": "randint", "_value": [0, 0]}, "randint leaves out high"),
        ({"_type": "mutable_layer", "_value": {"layer_1": LAYER}}, "'mutable_layer' is for architecture search"),
    ],
    ids=["a range without any value", "layers of a network"],
)
def test_what_nnis_tuners_fail_with_is_refused(name: str, parameter: dict[str, Any], told: str) -> None:
    with pytest.raises(SpaceError, match=told):
        construct(tuner_class(name), TUNERS[name]).update_search_space({"nothing": parameter})
