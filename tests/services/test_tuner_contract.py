"""The contract of tuners accepts a right one, finite or not, and finds the usual mistakes."""

from __future__ import annotations

import itertools
import random

import pytest

from nnilite.errors import NoMoreTrialError, SpaceError
from nnilite.space import SearchSpace
from nnilite.testing import TunerContract
from nnilite.tuner import Tuner


class Luck(Tuner):
    """Proposes at random, from a seed."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)

    def update_search_space(self, search_space):
        self.space = SearchSpace.parse(search_space)

    def generate_parameters(self, parameter_id, **kwargs):
        return self.space.sample(self.random)

    def receive_trial_result(self, parameter_id, parameters, value, **kwargs):
        pass


class Every(Luck):
    """Proposes each point of a space of choices once."""

    def update_search_space(self, search_space):
        names = list(search_space)
        if any(isinstance(option, dict) for name in names for option in search_space[name]["_value"]):
            raise SpaceError("nested choices are not searched")
        points = itertools.product(*(search_space[name]["_value"] for name in names))
        self.points = [dict(zip(names, point, strict=True)) for point in points]

    def generate_parameters(self, parameter_id, **kwargs):
        if not self.points:
            raise NoMoreTrialError
        return self.points.pop(0)


class Outside(Luck):
    def generate_parameters(self, parameter_id, **kwargs):
        return {**super().generate_parameters(parameter_id), "width": 10_000}


class Stubborn(Luck):
    def generate_parameters(self, parameter_id, **kwargs):
        return self.space.sample(random.Random(1))


class Flat(Luck):
    def generate_parameters(self, parameter_id, **kwargs):
        return {p.name: p.sample(self.random) for p in self.space.children()}


class Unseeded(Luck):
    def __init__(self) -> None:
        self.random = random.Random()


class TestRandomTuner(TunerContract):
    @pytest.fixture
    def make_tuner(self):
        return Luck


class TestFiniteTuner(TunerContract):
    finite = True
    space = {f"x{n}": {"_type": "choice", "_value": [1, 2, 3]} for n in range(5)}
    history = [{"parameter": {f"x{n}": 1 for n in range(5)}, "value": 1}]

    @pytest.fixture
    def make_tuner(self):
        return Every


def test_a_proposal_outside_the_space_is_found():
    tuner = Outside()
    tuner.update_search_space(TunerContract.space)
    with pytest.raises(AssertionError):
        TunerContract().test_proposals_are_json_and_in_the_space(tuner)


def test_a_proposal_that_is_made_twice_is_found():
    tuner = Stubborn()
    tuner.update_search_space(TunerContract.space)
    with pytest.raises(AssertionError):
        TunerContract().test_proposals_of_running_trials_differ(tuner)


def test_a_tuner_that_knows_nothing_of_nested_choices_is_found():
    with pytest.raises(AssertionError):
        TunerContract().test_nested_choices_are_searched_or_refused_at_once(Flat)


def test_a_replay_that_goes_on_otherwise_is_found():
    with pytest.raises(AssertionError):
        TunerContract().test_a_replayed_tuner_goes_on_as_the_old_one_would_have(Unseeded)


def test_a_tuner_that_never_says_that_it_is_done_is_found():
    contract = TunerContract()
    contract.finite = True
    with pytest.raises(AssertionError):
        contract.test_an_exhausted_space_is_said_each_time(Luck)
