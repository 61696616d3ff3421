"""Programs of NNI 2, and programs that guess, with `Experiment` and its config: they run, or say what to write."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from nnilite import Experiment
from nnilite.config import AlgorithmConfig, ExperimentConfig, ServiceConfig
from nnilite.errors import NotFound
from nnilite.tuner import Tuner
from shim import nni_modules


@pytest.fixture
def nni() -> Iterator[ModuleType]:
    with nni_modules() as imported:
        yield imported("nni")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Experiment(tuner="TPE", training_service="local"),
        lambda: Experiment(AlgorithmConfig(name="TPE"), "local"),
        lambda: Experiment(tuner={"name": "TPE"}, config=ExperimentConfig("local")),
        lambda: Experiment(AlgorithmConfig(name="TPE"), ExperimentConfig("local")),
        lambda: Experiment(tuner=AlgorithmConfig(name="TPE"), training_service=ServiceConfig("local")),
        lambda: Experiment("local", tuner="TPE"),
    ],
)
def test_an_experiment_takes_the_arguments_of_nni_2(make: Callable[[], Experiment]) -> None:
    made = make()
    assert (made.config.tuner.name, made.config.training_service.platform) == ("TPE", "local")


def test_an_experiment_has_the_id_that_it_will_start_with_as_in_nni() -> None:
    made = Experiment("local")
    assert re.fullmatch("[a-z][a-z0-9]{7}", made.id)
    assert made.id == made.id != Experiment("local").id
    assert repr(made) == f"<Experiment {made.id}, which has not begun>"
    assert Experiment("local", id="mine").id == "mine"


def test_a_config_takes_names_of_algorithms_and_of_a_platform() -> None:
    made = ExperimentConfig(tuner="TPE", assessor="Medianstop", training_service="local", trial_command="x")
    assert (made.tuner.name, made.assessor.name, made.training_service.platform) == ("TPE", "Medianstop", "local")


@pytest.mark.parametrize("name", ["config", "training_service", "platform"])
def test_the_platform_has_several_names(name: str) -> None:
    assert Experiment(**{name: "local"}).config.training_service.platform == "local"


class Mine(Tuner):
    """A tuner of a user's program."""

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        return {}

    def receive_trial_result(self, *args: Any, **kwargs: Any) -> None:
        pass

    def update_search_space(self, search_space: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Experiment(Mine(), "local"), "an experiment makes its own Mine, in a process of its own; write"),
        (lambda: Experiment("local", config="remote"), "takes one config or platform, and config is a second one"),
        (lambda: Experiment("local", concurrency=2), "takes no 'concurrency'; it takes config_or_platform, id and"),
        (
            lambda: Experiment("local", experiment_name="x"),
            "takes no 'experiment_name'; set experiment.config.experiment_",
        ),
        (lambda: Experiment({"trialCommand": "x"}), "write Experiment\\(nnilite.config.from_dict"),
        (lambda: Experiment(3), "takes an ExperimentConfig or the name of a platform, not int"),
    ],
)
def test_arguments_that_cannot_be_taken_are_answered(make: Callable[[], Experiment], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        make()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("get_experiment_status", "write get_status()"),
        ("stop_experiment", "write stop()"),
        ("start_experiment", "write Experiment(ExperimentConfig.load(FILE)).start(port)"),
        ("get_trial_jobs", "write list_trial_jobs()"),
        ("update_concurrency", "write update_trial_concurrency(value)"),
        ("wait_completion", "write run(port), which waits"),
        ("export_top_trial", "write best"),
        ("get_metrics", "write get_job_metrics()"),
        ("list_trials_jobs", "did you mean list_trial_jobs?"),
    ],
)
def test_methods_of_earlier_versions_are_answered_with_those_of_today(name: str, told: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(Experiment("local"), name)
    assert str(caught.value).endswith(told)


def test_a_private_name_and_one_that_resembles_nothing_are_plain_errors() -> None:
    for name in ("_nothing", "zzz"):
        with pytest.raises(AttributeError, match=f"an Experiment has no '{name}'$"):
            getattr(Experiment("local"), name)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Experiment.view(experiment_id="nosuch", port=0, non_blocking=True),
        lambda: Experiment("local").view(experiment_id="nosuch"),
        lambda: Experiment.resume(experiment_id="nosuch", port=0),
        lambda: Experiment("local").resume(experiment_id="nosuch"),
    ],
)
def test_view_and_resume_take_the_id_by_its_name_in_nni_2(call: Callable[[], object], tmp_path: Any) -> None:
    with pytest.raises(NotFound, match="There is no experiment 'nosuch'"):
        call()


def test_resume_without_any_id_says_where_it_belongs() -> None:
    with pytest.raises(NotFound, match="Which experiment"):
        Experiment.resume()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("optimize_mode", "; set tuner.class_args['optimize_mode']"),
        ("tuner_kwargs", "; set tuner.class_args"),
        ("machines", "; set training_service.machine_list"),
        ("use_active_gpu", "; it is a field of training_service"),
        ("training_service_platform", "; write ExperimentConfig('local'), with the name of the platform"),
        ("max_trial_num", "; did you mean max_trial_number?"),
        ("zzz", "; `nnictl config schema` shows all fields, in camelCase"),
    ],
)
def test_a_name_that_a_config_has_not_is_answered_at_reading_setting_and_making(name: str, told: str) -> None:
    config = ExperimentConfig("local")
    for use in (
        lambda: getattr(config, name),
        lambda: setattr(config, name, 1),
        lambda: ExperimentConfig("local", **{name: 1}),
    ):
        with pytest.raises(AttributeError) as caught:
            use()
        assert str(caught.value) == f"ExperimentConfig has no field {name!r}{told}"


def test_an_argument_of_a_tuner_belongs_to_its_arguments() -> None:
    with pytest.raises(AttributeError, match="AlgorithmConfig has no field 'population_size'; set class_args"):
        ExperimentConfig("local").tuner.population_size = 3  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="local has no field 'use_active_gpus'; did you mean use_active_gpu"):
        _ = ExperimentConfig("local").training_service.use_active_gpus


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("report_final_results", "report_final_result"),
        ("get_trial_parameters", "get_next_parameter"),
        ("get_params", "get_next_parameter"),
    ],
)
def test_a_misspelt_call_of_a_trial_is_answered_with_its_name(nni: Any, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"nni.{name} is not .* offers. Did you mean {meant}\?$"):
        getattr(nni, name)


@pytest.mark.parametrize("name", ["create_experiment", "run", "get_best_parameters", "stop"])
def test_what_an_experiment_does_is_answered_with_experiment(nni: Any, name: str) -> None:
    with pytest.raises(AttributeError, match=r"Did you mean nni\.experiment\.Experiment, which has methods for that\?"):
        getattr(nni, name)


def test_the_name_of_nni_0_for_parameters_works(nni: Any) -> None:
    assert nni.get_parameters is nni.get_next_parameter


def test_a_function_in_place_of_arguments_is_answered_with_calling_it(nni: Any) -> None:
    with pytest.raises(TypeError, match="not a function: call it"):
        nni.utils.merge_parameter(dict, {"x": 1})


@pytest.mark.parametrize("name", ["TpeTuner", "RandomTuner", "MedianstopAssessor", "BOHB"])
def test_a_tuner_is_found_without_its_module(nni: Any, name: str) -> None:
    found = importlib.import_module("nni.algorithms.hpo")
    assert getattr(found, name).__module__.startswith("nnilite_")


@pytest.mark.parametrize("module", ["nni.tuners", "nni.hpo", "nni.multi_phase", "nni.smartparam"])
def test_what_no_present_nni_has_is_not_sent_to_the_real_one(
    nni: Any, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "nnilite._tuner_host", raising=False)  # which tests of tuners import
    with pytest.raises(ModuleNotFoundError, match="NNI 3 does not have it either"):
        importlib.import_module(module)
    with pytest.raises(ModuleNotFoundError, match="install the real package"):
        importlib.import_module("nni.nas.experiment")
