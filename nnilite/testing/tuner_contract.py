"""The tests that every tuner passes, built in or not.

    class TestMyTuner(TunerContract):
        @pytest.fixture
        def make_tuner(self):
            return lambda: MyTuner(seed=1)

`make_tuner()` must give equal tuners each time it is called (the same seed), unless `deterministic` is False.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from nnilite.errors import NoMoreTrialError, SpaceError
from nnilite.space import SearchSpace
from nnilite.tuner import Call, CallKind, Tuner

_MOST = 2000  # parameters that a small space can have

MakeTuner = Callable[[], Tuner]


class TunerContract:
    """Requirements on a tuner, beyond the signatures of `Tuner`.

    - what it proposes is JSON and lies in the search space; nested choices are searched, or refused at once
    - while trials run, their parameters are not proposed again
    - results may come late, in any order, as numbers or dicts, or never
    - a new tuner after a replay continues as the old one would have
    - when it has no more to propose it raises NoMoreTrialError, as often as it is asked
    """

    deterministic = True  # equal tuners with equal histories propose equally
    finite = False  # it has no more to propose for `small_space` some day
    extra_keys: frozenset[str] = frozenset()  # keys that the tuner adds to the parameters of the space

    space: Any = {
        "rate": {"_type": "loguniform", "_value": [1e-5, 0.1]},
        "width": {"_type": "randint", "_value": [4, 64]},
        "kind": {"_type": "choice", "_value": ["a", "b", "c"]},
    }
    small_space: Any = {
        "x": {"_type": "choice", "_value": [1, 2]},
        "y": {"_type": "choice", "_value": ["a", "b", "c"]},
    }
    nested_space: Any = {
        "x": {"_type": "uniform", "_value": [-1, 1]},
        "layer": {
            "_type": "choice",
            "_value": [{"_name": "none"}, {"_name": "conv", "size": {"_type": "choice", "_value": [3, 5]}}],
        },
    }
    history: list[dict[str, Any]] = [
        {"parameter": {"rate": 0.01, "width": 8, "kind": "a"}, "value": 0.5},
        {"parameter": {"rate": 0.02, "width": 16, "kind": "b"}, "value": {"default": 0.25, "loss": 1}},
    ]

    @pytest.fixture
    def make_tuner(self) -> MakeTuner:
        """Return a function that makes a tuner that has not been given a search space. To be overridden."""
        raise NotImplementedError("define the fixture make_tuner")

    @pytest.fixture
    def tuner(self, make_tuner: MakeTuner) -> Tuner:
        """Return a tuner with `space`."""
        tuner = make_tuner()
        tuner.update_search_space(self.space)
        return tuner

    def outside(self, space: Any, parameters: Any) -> str | None:
        """Return why parameters do not lie in a space; None if they do."""
        chosen = {key: value for key, value in parameters.items() if key not in self.extra_keys}
        return SearchSpace.parse(space).contains(chosen)

    def test_proposals_are_json_and_in_the_space(self, tuner: Tuner) -> None:
        for number in range(30):
            parameters = _ask_for_proposal(tuner, number)
            if parameters is None:
                break
            assert json.loads(json.dumps(parameters, allow_nan=False)) == parameters
            assert self.outside(self.space, parameters) is None
            tuner.receive_trial_result(number, parameters, 0.1 * number, customized=False, trial_job_id=f"T{number}")

    def test_several_are_proposed_at_once(self, tuner: Tuner) -> None:
        proposals = tuner.generate_multiple_parameters([0, 1, 2])
        assert len(proposals) == 3
        assert [self.outside(self.space, item) for item in proposals] == [None] * 3

    def test_proposals_of_running_trials_differ(self, tuner: Tuner) -> None:
        proposals = [json.dumps(item) for item in tuner.generate_multiple_parameters(list(range(5)))]
        assert len(set(proposals)) == 5

    def test_nested_choices_are_searched_or_refused_at_once(self, make_tuner: MakeTuner) -> None:
        tuner = make_tuner()
        try:
            tuner.update_search_space(self.nested_space)
        except SpaceError:
            return
        found = tuner.generate_multiple_parameters(list(range(5)))
        assert [self.outside(self.nested_space, item) for item in found] == [None] * 5

    def test_results_may_come_in_any_order_and_shape_or_never(self, tuner: Tuner) -> None:
        proposals = tuner.generate_multiple_parameters(list(range(6)))
        values = [0.5, {"default": 0.2, "loss": 3}, 1, -7.5, 0]
        for number, value in reversed(list(enumerate(values))):
            tuner.receive_trial_result(number, proposals[number], value, customized=False, trial_job_id=f"T{number}")
            tuner.trial_end(number, True, trial_job_id=f"T{number}")
        tuner.trial_end(5, False, trial_job_id="T5")
        assert self.outside(self.space, tuner.generate_parameters(6)) is None

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {"loss": 1}, "good", None, [1]])
    def test_a_result_without_a_usable_number_does_no_harm(self, tuner: Tuner, value: Any) -> None:
        tuner.receive_trial_result(0, tuner.generate_parameters(0), value, customized=False, trial_job_id="T0")
        tuner.trial_end(0, True, trial_job_id="T0")
        assert self.outside(self.space, tuner.generate_parameters(1)) is None

    def test_a_trial_may_end_without_a_result(self, tuner: Tuner) -> None:
        tuner.generate_parameters(0)
        tuner.trial_end(0, False, trial_job_id="T0")
        assert self.outside(self.space, tuner.generate_parameters(1)) is None

    def test_the_end_of_a_trial_of_the_users_does_no_harm(self, tuner: Tuner) -> None:
        tuner.trial_end(None, True, trial_job_id="T0")
        assert self.outside(self.space, tuner.generate_parameters(0)) is None

    def test_results_from_elsewhere_can_be_imported(self, tuner: Tuner) -> None:
        tuner.import_data(json.loads(json.dumps(self.history)))
        tuner.import_data([])
        assert self.outside(self.space, tuner.generate_parameters(0)) is None

    def test_the_space_can_be_changed_on_the_way(self, tuner: Tuner) -> None:
        first = tuner.generate_parameters(0)
        tuner.update_search_space(self.small_space)
        tuner.receive_trial_result(0, first, 0.5, customized=False, trial_job_id="T0")
        assert self.outside(self.small_space, tuner.generate_parameters(1)) is None

    def test_equal_tuners_propose_equally(self, make_tuner: MakeTuner) -> None:
        if not self.deterministic:
            pytest.skip("this tuner has no seed")
        tuners = [make_tuner(), make_tuner()]
        runs = [_play(tuner, self.space, 25)[1] for tuner in tuners]
        assert runs[0] == runs[1]

    def test_a_replayed_tuner_goes_on_in_the_space(self, make_tuner: MakeTuner) -> None:
        calls, _ = _play(make_tuner(), self.space, 25)
        again = make_tuner()
        again.replay(calls)
        assert self.outside(self.space, again.generate_parameters(25)) is None

    def test_a_replayed_tuner_goes_on_as_the_old_one_would_have(self, make_tuner: MakeTuner) -> None:
        if not self.deterministic:
            pytest.skip("this tuner has no seed")
        old, again = make_tuner(), make_tuner()
        calls, _ = _play(old, self.space, 25)
        again.replay([_pass_through_json(call) for call in calls])
        expected = [old.generate_parameters(number) for number in range(25, 30)]
        assert [again.generate_parameters(number) for number in range(25, 30)] == expected

    def test_a_replay_may_have_an_unfinished_end(self, make_tuner: MakeTuner) -> None:
        calls, _ = _play(make_tuner(), self.space, 5)
        for length in range(1, len(calls)):
            again = make_tuner()
            again.replay(calls[:length])
            assert self.outside(self.space, again.generate_parameters(100)) is None

    def test_an_exhausted_space_is_said_each_time(self, make_tuner: MakeTuner) -> None:
        if not self.finite:
            pytest.skip("this tuner always has something to propose")
        tuner = make_tuner()
        tuner.update_search_space(self.small_space)
        number = 0
        while _ask_for_proposal(tuner, number) is not None:
            number += 1
            assert number < _MOST
        with pytest.raises(NoMoreTrialError):
            tuner.generate_parameters(number + 1)
        assert tuner.generate_multiple_parameters([number + 2, number + 3]) == []

    def test_the_end_of_the_experiment_is_taken(self, tuner: Tuner) -> None:
        tuner.generate_parameters(0)
        tuner._on_exit()


def _ask_for_proposal(tuner: Tuner, number: int) -> Any:
    """Return parameters, or None if there are no more."""
    try:
        return tuner.generate_parameters(number)
    except NoMoreTrialError:
        return None


def _play(tuner: Tuner, space: Any, trials: int) -> tuple[list[Call], list[Any]]:
    """Play a short search, two trials at a time, the second of a pair ending first.

    Return its calls and its proposals.
    """
    calls = [Call(CallKind.SPACE, value=space)]
    tuner.update_search_space(space)
    proposals: list[Any] = []
    for number in range(trials):
        proposal = tuner.generate_parameters(number)
        proposals.append(json.loads(json.dumps(proposal)))
        calls.append(Call(CallKind.GENERATE, number, parameters=proposals[-1]))
        if number % 2:
            for ending in (number, number - 1):
                calls += _end(tuner, ending, proposals[ending])
    return calls, proposals


def _end(tuner: Tuner, number: int, parameters: Any) -> list[Call]:
    name, value = f"T{number}", (number * 7 % 10) / 10
    tuner.receive_trial_result(number, parameters, value, customized=False, trial_job_id=name)
    tuner.trial_end(number, True, trial_job_id=name)
    result = Call(CallKind.RESULT, number, trial_job_id=name, parameters=parameters, value=value)
    return [result, Call(CallKind.END, number, trial_job_id=name, success=True)]


def _pass_through_json(call: Call) -> Call:
    return Call(**json.loads(json.dumps(call.__dict__)))
