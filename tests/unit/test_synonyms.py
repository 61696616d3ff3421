"""Names and habits of other libraries are answered with what to write here."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import nnilite
from nnilite import Experiment, Search, integrations, plot, space
from nnilite._plugins import lookup
from nnilite._plugins.name_synonyms import _TABLES, find_meant
from nnilite.errors import ConfigError, Conflict, NniliteError, PluginError
from nnilite.records import Trial, TrialState

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}, "depth": {"_type": "choice", "_value": [1, 2]}}
GROUPS = {"tuner": lookup.TUNERS, "assessor": lookup.ASSESSORS, "training service": lookup.SERVICES}


def value_of(parameters: dict[str, Any]) -> float:
    return float(parameters["x"])


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("best_params", r"write result\(\)\.best\.parameters$"),
        ("best_trial", r"write result\(\)\.best$"),
        ("optimize", r"write run\(function, trials=\.\.\.\)$"),
        ("trials_dataframe", r"write result\(\)\.to_dataframe\(\)$"),
        ("complete_trial", r"write tell\(trial, value\)$"),
        ("enqueue_trial", r"write enqueue\(parameters\)$"),
        ("optimise", r"^'Search' object has no attribute 'optimise'$"),
    ],
)
def test_a_search_says_what_stands_for_an_attribute_of_a_study(name: str, cure: str) -> None:
    with pytest.raises(AttributeError, match=cure):
        getattr(Search(SPACE, tuner="Random"), name)


@pytest.mark.parametrize(
    ("name", "cure"),
    [("best_params", "write best.parameters$"), ("get_best_result", "write best$"), ("to_pandas", "to_dataframe")],
)
def test_a_result_says_what_stands_for_an_attribute_of_another(name: str, cure: str) -> None:
    with pytest.raises(AttributeError, match=cure) as caught:
        getattr(Search(SPACE, tuner="Random").result(), name)
    assert caught.value.name == name  # Python looks for the nearest name with it


@pytest.mark.parametrize(
    ("of", "name", "cure"),
    [
        (nnilite, "report", "write report_final_result.*report_intermediate_result"),
        (space, "suggest_float", "write uniform$"),
        (space, "CategoricalDistribution", "write choice$"),
        (space, "sample_from", r"write choice\(\[option"),
        (plot, "plot_optimization_history", "write history$"),
        (integrations, "XGBoostPruningCallback", "write XGBoostCallback$"),
        (Trial("a", 0, {}), "params", "write parameters$"),
        (Trial("a", 0, {}), "suggest_int", r"write parameters, and the search space in Search\(space\)$"),
        (Trial("a", 0, {}), "number", "write sequence$"),
    ],
)
def test_modules_and_trials_say_what_stands_for_a_name_of_another_library(of: Any, name: str, cure: str) -> None:
    with pytest.raises(AttributeError, match=cure):
        getattr(of, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'nobody'$"):
        _ = of.nobody


@pytest.mark.parametrize(("module", "names"), [(plot, "_OF_OPTUNA"), (integrations, "_ELSEWHERE")])
def test_what_stands_for_names_of_another_library_is_there(module: Any, names: str) -> None:
    assert set(getattr(module, names).values()) <= set(module.__all__)


@pytest.mark.parametrize("state", ["FAILED", TrialState.FAILED, SimpleNamespace(name="FAILED")])
def test_a_trial_may_be_told_to_end_by_the_name_of_a_state(state: Any) -> None:
    search = Search(SPACE, tuner="Random")
    assert search.tell(search.ask(), state=state).state is TrialState.FAILED


@pytest.mark.parametrize(
    ("state", "cure"),
    [
        ("COMPLETE", "not 'COMPLETE'; did you mean 'SUCCEEDED'"),
        ("failed", "did you mean 'FAILED'"),
        (SimpleNamespace(name="PRUNED"), "did you mean 'EARLY_STOPPED'"),
        (TrialState.RUNNING, "must be one of SUCCEEDED, FAILED, USER_CANCELED, SYS_CANCELED, EARLY_STOPPED, not"),
    ],
)
def test_a_state_of_another_library_is_refused_before_the_trial_ends(state: Any, cure: str) -> None:
    search = Search(SPACE, tuner="Random")
    trial = search.ask()
    with pytest.raises(ConfigError, match=cure):
        search.tell(trial, 1.0, state)
    assert search.tell(trial, 1.0).value == 1.0


def test_a_result_is_a_sequence_that_can_be_copied_and_pickled() -> None:
    result = Search(SPACE, tuner="Random").run(value_of, trials=3)
    assert [result[0].id, result[-1].id] == ["0", "2"]
    assert len(copy.deepcopy(result)) == len(pickle.loads(pickle.dumps(result))) == 3


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ({"random_state": 1}, "write seed=.$"),
        ({"points_to_evaluate": []}, r"write search\.enqueue"),
        ({"scheduler": "asha"}, "tuner='ASHA'"),
    ],
)
def test_an_argument_of_another_library_is_answered(words: dict[str, Any], cure: str) -> None:
    with pytest.raises(TypeError, match=cure):
        Search(SPACE, **words)


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ({"num_samples": 3}, "write trials=.$"),
        ({"max_concurrent_trials": 3}, "write concurrency=.$"),
        ({"resume": True}, "write storage='searches/NAME'"),
        ({"seed": 3}, "'seed'; give it to `Search`.$"),
    ],
)
def test_an_argument_of_another_run_is_answered(words: dict[str, Any], cure: str) -> None:
    with pytest.raises(TypeError, match=cure):
        Search(SPACE, tuner="Random").run(value_of, **words)


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ({"trials": "10"}, "^trials must be a whole number, not '10'"),
        ({"callbacks": print}, r"write callbacks=\[\.\.\.\]"),
    ],
)
def test_a_wrong_argument_of_run_is_refused_before_the_first_trial(words: dict[str, Any], cure: str) -> None:
    search = Search(SPACE, tuner="Random")
    with pytest.raises(Conflict, match=cure):
        search.run(value_of, **{"trials": 1, **words})
    assert not search.result().trials


@pytest.mark.parametrize(("given", "meant"), [("min", "minimize"), ("MAX", "maximize"), ("minimise", "minimize")])
def test_a_direction_in_other_words_is_answered(given: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"^optimize: must be .*, not '{given}'; did you mean '{meant}'\?$"):
        Search(SPACE, optimize=given)


@pytest.mark.parametrize("kind", GROUPS)
def test_each_name_from_elsewhere_stands_for_a_plugin_that_is_here(kind: str) -> None:
    here = lookup.names(GROUPS[kind])
    assert set(_TABLES[kind]) <= set(here)
    for meant, names in _TABLES[kind].items():
        for name in names.split():
            assert find_meant(kind, name) == (kind, meant)
            assert name not in {one.lower() for one in here}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("bayes", "GP"),
        ("BayesianOptimization", "GP"),
        ("gp_sampler", "GP"),
        ("sobol", "QMC"),
        ("RandomSearch", "Random"),
        ("HyperBandForBOHB", "BOHB"),
        ("NSGA-II", "NSGA2"),
        ("CMA-ES", "CMAES"),
        ("HyperOpt", "TPE"),
        ("ASHAScheduler", "ASHA"),
    ],
)
def test_a_tuner_under_its_name_elsewhere_is_answered_with_its_name_here(given: str, meant: str) -> None:
    with pytest.raises(PluginError, match=f"did you mean '{meant}'"):
        Search(SPACE, tuner=given)


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ({"tuner": "Medianstop"}, "Medianstop is an assessor: name it as assessor"),
        ({"assessor": "ASHA"}, "ASHA is a tuner: name it as tuner"),
        ({"assessor": "MedianPruner"}, "did you mean 'Medianstop'"),
    ],
)
def test_tuners_and_assessors_are_told_apart(words: dict[str, Any], cure: str) -> None:
    with pytest.raises(PluginError, match=cure):
        Search(SPACE, **words)


@pytest.mark.parametrize(("given", "meant"), [("ssh", "remote"), ("k8s", "kubernetes"), ("SGE", "batch")])
def test_a_platform_under_another_name_is_answered_with_its_name_here(given: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        Experiment(given)


def test_a_path_in_the_place_of_a_platform_is_answered() -> None:
    with pytest.raises(TypeError, match=r"ExperimentConfig\.load\('config\.yaml'\)"):
        Experiment("config.yaml")


def by_name(x: float, depth: int) -> float:
    return x * depth


def by_keyword(**parameters: Any) -> float:
    return float(parameters["x"])


@pytest.mark.parametrize("on", [None, "local"])
@pytest.mark.parametrize("function", [by_name, by_keyword, lambda trial, *, depth: 1.0])
def test_a_function_of_single_parameters_is_refused_with_the_cure(
    function: Callable[..., float], on: str | None
) -> None:
    search = Search(SPACE, tuner="Random")
    with pytest.raises(Conflict, match=r"give lambda parameters: .*\(\*\*parameters\)\.$"):
        search.run(function, trials=1, on=on)
    assert not search.result().trials
    assert search.run(lambda parameters: by_name(**parameters), trials=1).best


def with_report(x: dict[str, Any], report: Callable[[float], None]) -> float:
    report(1.0)
    return float(x["x"])


def wrapped(*args: Any, **kwargs: Any) -> float:
    return value_of(*args, **kwargs)


@pytest.mark.parametrize("function", [with_report, wrapped, lambda x: x["x"]])
def test_functions_that_take_the_dict_are_called_whatever_its_name(function: Callable[..., float]) -> None:
    assert Search(SPACE | {"report": SPACE["x"]}, tuner="Random").run(function, trials=2).best


def suggesting(trial: Any) -> float:
    return float(trial.suggest_float("x", 0, 1))


def with_steps(parameters: Any, report: Any) -> float:
    report(1.0, step=1)
    return 1.0


class TrialPruned(Exception):
    pass


def pruned(parameters: Any) -> float:
    raise TrialPruned


@pytest.mark.parametrize(
    ("function", "cure"),
    [
        (suggesting, "the search space is given to Search"),
        (with_steps, r"call report\(value\) alone"),
        (pruned, r"raise nnilite\.search\.TrialStopped"),
        (lambda parameters: {"loss": 1.0}, r"give Search optimize={'loss': 'minimize'}"),
    ],
)
def test_a_function_for_another_library_is_told_what_to_write(function: Callable[..., Any], cure: str) -> None:
    with pytest.raises(NniliteError, match=cure):
        Search(SPACE, tuner="Random").run(function, trials=2)


TWO = {"loss": "minimize", "size": "minimize"}


def test_a_pair_for_two_objectives_is_told_what_to_write(caplog: pytest.LogCaptureFixture) -> None:
    search = Search(SPACE, optimize=TWO)
    with caplog.at_level(logging.WARNING, "nnilite.search"):
        assert search.tell(search.ask(), [1, 2]).state.value == "FAILED"
    assert "return {'loss': ..., 'size': ...}" in caplog.text


def test_a_missing_number_is_no_news_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    search = Search(SPACE, tuner="Random")
    with caplog.at_level(logging.WARNING, "nnilite.search"):
        search.tell(search.ask(), float("nan"))
        search.tell(search.ask(), None)
    assert not caplog.text


def test_a_list_of_points_is_refused() -> None:
    with pytest.raises(Conflict, match="call it for each"):
        Search(SPACE).enqueue([{"x": 0.5, "depth": 1}])
