"""Each installed tuner takes whole numbers with a step or on a log scale, and a choice of numbers with an order."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nnilite._plugins import lookup
from nnilite.errors import NoMoreTrialError
from nnilite.space import SearchSpace

SPACE: dict[str, Any] = {
    "batch": {"_type": "lograndint", "_value": [1, 512]},
    "width": {"_type": "qrandint", "_value": [8, 64, 8], "_unit": "px"},
    "units": {"_type": "qlograndint", "_value": [16, 1024, 16]},
    "depth": {"_type": "choice", "_value": [1, 2, 4, 32], "_ordered": True},
}
TUNERS = sorted(set(lookup.names(lookup.TUNERS)) - {"Batch"})  # whose space is one choice of whole sets
ARGUMENTS = {"NSGA2": {"objectives": {"default": "minimize", "cost": "minimize"}}}


@pytest.mark.parametrize("name", TUNERS)
def test_a_tuner_proposes_whole_numbers_of_the_space(name: str) -> None:
    tuner: Any = lookup.tuner_class(name)(**ARGUMENTS.get(name, {}))
    tuner.update_search_space(SPACE)
    known = SearchSpace.parse(SPACE)
    for number in range(14):
        try:
            proposed = tuner.generate_parameters(number)
        except NoMoreTrialError:
            break
        found = {key: value for key, value in proposed.items() if key in SPACE}
        assert known.contains(found) is None, found
        assert all(isinstance(found[key], int) for key in SPACE), found
        value = abs(math.log(found["batch"]) - 3) + found["width"] / 64
        tuner.receive_trial_result(number, proposed, {"default": value, "cost": -value})
        tuner.trial_end(number, True)
    assert number > 2
