"""Modules of NNI that custom tuners, advisors and trials import, under NNI's names."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import nnilite
from nnilite.errors import ConfigError, NoMoreTrialError
from nnilite.tuner import Call, CallKind
from shim import nni_modules

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}
NESTED = {
    "lr": {"_type": "uniform", "_value": [0, 1]},
    "net": {"_type": "choice", "_value": [{"_name": "a", "n": {"_type": "randint", "_value": [1, 5]}}, {"_name": "b"}]},
}
Imported = Callable[[str], ModuleType]


@pytest.fixture
def imported() -> Iterator[Imported]:
    with nni_modules() as found:
        yield found


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("tpe_tuner", "TpeTuner"),
        ("tpe_tuner", "TPETuner"),
        ("random_tuner", "RandomTuner"),
        ("gridsearch_tuner", "GridSearchTuner"),
        ("batch_tuner", "BatchTuner"),
        ("evolution_tuner", "EvolutionTuner"),
        ("hyperopt_tuner", "HyperoptTuner"),
        ("gp_tuner", "GPTuner"),
        ("gp_tuner.gp_tuner", "GPTuner"),
        ("metis_tuner.metis_tuner", "MetisTuner"),
        ("pbt_tuner", "PBTTuner"),
        ("dngo_tuner", "DNGOTuner"),
        ("smac_tuner.smac_tuner", "SMACTuner"),
        ("hyperband_advisor", "Hyperband"),
        ("bohb_advisor.bohb_advisor", "BOHB"),
    ],
)
def test_a_tuner_can_derive_from_one_of_nnis(imported: Imported, module: str, name: str) -> None:
    base = getattr(imported(f"nni.algorithms.hpo.{module}"), name)
    own = type("Own", (base,), {})
    assert issubclass(own, nnilite.Tuner)


@pytest.mark.parametrize(
    ("module", "name"),
    [("medianstop_assessor", "MedianstopAssessor"), ("curvefitting_assessor", "CurvefittingAssessor")],
)
def test_an_assessor_can_derive_from_one_of_nnis(imported: Imported, module: str, name: str) -> None:
    assert issubclass(getattr(imported(f"nni.algorithms.hpo.{module}"), name), nnilite.Assessor)


@pytest.mark.parametrize(("algorithm", "kind"), [("tpe", "TPE"), ("random_search", "Random"), ("anneal", "Anneal")])
def test_the_hyperopt_tuner_is_the_tuner_that_its_first_argument_names(
    imported: Imported, algorithm: str, kind: str
) -> None:
    tuner = imported("nni.algorithms.hpo.hyperopt_tuner").HyperoptTuner(algorithm, optimize_mode="maximize")
    tuner.update_search_space(SPACE)
    parameters = tuner.generate_parameters(0)
    tuner.receive_trial_result(0, parameters, 0.5)
    tuner.trial_end(0, True)
    assert type(tuner._tuner).__name__.startswith(kind)
    assert 0 <= parameters["x"] <= 1


def test_the_hyperopt_tuner_names_the_algorithms_that_there_are(imported: Imported) -> None:
    with pytest.raises(ConfigError, match="tpe"):
        imported("nni.algorithms.hpo.hyperopt_tuner").HyperoptTuner("annealing")


def test_the_hyperopt_tuner_lets_running_trials_count_for_anneal_as_its_arguments_say(imported: Imported) -> None:
    made = imported("nni.algorithms.hpo.hyperopt_tuner").HyperoptTuner
    proposed = []
    for parallel in (False, True):
        tuner = made("anneal", "minimize", parallel, "min")
        tuner._tuner.seed = 1
        tuner.update_search_space({"x": {"_type": "uniform", "_value": [0, 1]}})
        tuner.import_data([{"parameter": {"x": 0.1}, "value": 0}])
        proposed.append([tuner.generate_parameters(number)["x"] for number in range(9)])
    assert proposed[0] != proposed[1]
    with pytest.raises(ConfigError, match="constant_liar_type"):
        made("anneal", constant_liar_type="median")


def test_the_arguments_of_tpe_have_nnis_names_and_defaults(imported: Imported) -> None:
    arguments = imported("nni.algorithms.hpo.tpe_tuner").TpeArguments(n_startup_jobs=5)
    assert arguments._asdict() == {
        "constant_liar_type": "best",
        "n_startup_jobs": 5,
        "n_ei_candidates": 24,
        "linear_forgetting": 25,
        "prior_weight": 1.0,
        "gamma": 0.25,
    }


def test_tracing_changes_nothing_and_plain_values_are_dumped(imported: Imported) -> None:
    nni = imported("nni")

    @nni.trace
    class Net:
        pass

    assert nni.trace(kw_only=False)(Net) is Net
    assert nni.load(nni.dump({"a": [1]})) == {"a": [1]}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from nni import choice", "nni.choice"),
        ("from nni.utils import ClassType", "nni.utils.ClassType"),
        ("from nni.common.device import GPUDevice", "nni.common.device"),
        ("from nni.common import framework", "nni.common.framework"),
        ("from nni.algorithms.hpo.tpe_tuner import create_liar", "nni.algorithms.hpo.tpe_tuner.create_liar"),
        ("from nni.runtime.msg_dispatcher import MsgDispatcher", "nni.runtime.msg_dispatcher"),
        ("from nni.runtime.config import get_config_file", "nni.runtime.config"),
        ("from nni.runtime.log import init_logger", "nni.runtime.log.init_logger"),
        ("import nni.runtime.trial_command_channel", "nni.runtime.trial_command_channel"),
        ("from nni.experiment.config.utils import diff", "nni.experiment.config.utils.diff"),
        ("from nni.experiment.config.convert import convert_algo", "nni.experiment.config.convert.convert_algo"),
        ("from nni.experiment.launcher import start_experiment", "nni.experiment.launcher"),
        ("from nni.tools.nnictl import rest_utils", "nni.tools.nnictl.rest_utils"),
        ("from nni.tools.nnictl.updater import validate_digit", "nni.tools.nnictl.updater.validate_digit"),
    ],
)
def test_what_has_no_meaning_here_gets_a_sentence_by_module_and_by_name(
    imported: Imported, line: str, name: str
) -> None:
    imported("nni")
    with pytest.raises(ImportError, match=rf"^{re.escape(name)} is not among the parts of NNI that nnilite offers\. "):
        exec(line, {})


@pytest.mark.parametrize("name", ["hyperopt_tuner.hyperopt_tuner", "medianstop_assessor", "hyperband_advisor"])
def test_what_nni_1_had_elsewhere_is_named_with_its_present_place(imported: Imported, name: str) -> None:
    first = name.split(".")[0]
    with pytest.raises(ImportError, match=rf"NNI 2 has moved it: import it from nni\.algorithms\.hpo\.{first}\.$"):
        imported(f"nni.{name}")
    imported(f"nni.algorithms.hpo.{first}")


@pytest.mark.parametrize("name", ["env_vars", "msg_dispatcher_base", "protocol"])
def test_what_nni_1_had_at_its_top_is_named_with_its_present_place(imported: Imported, name: str) -> None:
    with pytest.raises(ImportError, match=rf"NNI 2 has moved it: import it from nni\.runtime\.{name}\.$"):
        imported(f"nni.{name}")
    imported(f"nni.runtime.{name}")


def test_the_client_of_nni_1_is_answered_with_what_is_here(imported: Imported) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"ExperimentConfig.load\(FILE\)\)\.start\(port\) starts"):
        imported("nnicli")


def test_names_that_are_missing_stay_ordinary_attribute_errors(imported: Imported) -> None:
    assert not hasattr(imported("nni.utils"), "ClassType")
    assert not hasattr(imported("nni"), "choice")


def test_a_derived_tuner_works(imported: Imported) -> None:
    class Rounded(imported("nni.algorithms.hpo.random_tuner").RandomTuner):  # type: ignore[misc]
        def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
            return {"x": round(super().generate_parameters(parameter_id, **kwargs)["x"], 1)}

    tuner = Rounded(seed=1)
    tuner.update_search_space(SPACE)
    drawn = tuner.generate_parameters(0)["x"]
    assert drawn == round(drawn, 1)


@pytest.mark.parametrize("module", ["ppo_tuner", "regularized_evolution_tuner", "networkmorphism_tuner"])
def test_tuners_that_search_architectures_are_refused_by_that(imported: Imported, module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="searches architectures"):
        imported(f"nni.algorithms.hpo.{module}")


def test_the_names_of_a_search_space_and_its_parameters(imported: Imported) -> None:
    np = pytest.importorskip("numpy")
    helpers = imported("nni.utils")
    names = helpers.json2space(NESTED)
    assert names == ["root[lr]-uniform", "root[net]-choice[0][n]-randint", "root[net]-choice"]
    drawn = helpers.json2parameter(NESTED, dict.fromkeys(names, True), np.random.RandomState(0))
    assert drawn["net"]["_index"] in (0, 1)
    plain = helpers.split_index(drawn)
    assert plain["net"]["_name"] == "ab"[drawn["net"]["_index"]]
    kept = helpers.json2parameter(NESTED, dict.fromkeys(names, False), np.random.RandomState(1), drawn)
    assert kept == drawn
    with_a = {"lr": 0.5, "net": {"_index": 0, "_value": {"_name": "a", "n": 3}}}
    assert helpers.json2space(NESTED, with_a) == names
    with_b = {"lr": 0.5, "net": {"_index": 1, "_value": {"_name": "b"}}}
    assert helpers.json2space(NESTED, with_b) == ["root[lr]-uniform", "root[net]-choice"]


def test_a_nested_choice_without_names_is_refused(imported: Imported) -> None:
    with pytest.raises(RuntimeError, match="has no _name"):
        imported("nni.utils").json2space({"a": {"_type": "choice", "_value": [{"b": 1}]}})


def test_values_are_drawn_from_every_type(imported: Imported) -> None:
    np = pytest.importorskip("numpy")
    drawn, state = imported("nni.parameter_expressions"), np.random.RandomState(0)
    assert drawn.choice("abc", state) in "abc"
    assert drawn.randint(3, 4, state) == 3
    assert 1 <= drawn.loguniform(1, 2, state) <= 2
    assert drawn.quniform(2, 10, 5, state) in (2, 5, 10)
    assert drawn.qloguniform(1, 8, 2, state) % 2 in (0, 1)
    assert drawn.qnormal(0, 1, 0.5, state) % 0.5 == 0
    assert drawn.lognormal(0, 1, state) > 0
    assert drawn.qlognormal(0, 1, 2, state) % 2 == 0


def test_further_names_that_examples_import(imported: Imported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNI_OUTPUT_DIR", "/out")
    assert imported("nni.runtime.env_vars").trial_env_vars.NNI_OUTPUT_DIR == "/out"
    assert imported("nni.runtime.env_vars").dispatcher_env_vars.NNI_MODE is None
    assert imported("nni.runtime.common").multi_phase_enabled() is False
    assert imported("nni.runtime.protocol").CommandType.NewTrialJob.value == "TR"
    assert imported("nni.recoverable").Recoverable is nnilite.Tuner
    assert imported("nni.typehint").Parameters
    assert imported("nni.utils").convert_dict2tuple({"b": {"d": 1, "c": 2}}) == (("b", (("c", 2), ("d", 1))),)
    assert imported("nni.utils").extract_scalar_history([1, {"default": 2}]) == [1, 2]


def test_an_advisor_that_has_no_trial_now_is_asked_again(imported: Imported) -> None:
    base = imported("nni.runtime.msg_dispatcher_base").MsgDispatcherBase
    commands = imported("nni.runtime.tuner_command_channel").CommandType

    class OneAtATime(base):
        sent = 0
        running = False

        def handle_request_trial_jobs(self, data: int) -> None:
            if self.running:
                self.send(commands.NoMoreTrialJobs, '{"parameter_id": "1_0_0", "parameters": ""}')
                return
            self.running, self.sent = True, self.sent + 1
            self.send(commands.NewTrialJob, json.dumps({"parameter_id": self.sent, "parameters": self.sent}))

        def handle_trial_end(self, data: dict[str, Any]) -> None:
            self.running = False

    advisor = OneAtATime()
    assert advisor.generate_multiple_parameters([0, 1]) == [1]
    advisor.trial_end(0, True, trial_job_id="t")
    assert advisor.generate_multiple_parameters([1, 2]) == [2]


def test_an_advisor_that_asks_what_was_before_a_resume_finds_that_all_is_its_own(imported: Imported) -> None:
    advisor = imported("nni.runtime.msg_dispatcher_base").MsgDispatcherBase()
    advisor.send(imported("nni.runtime.protocol").CommandType.NewTrialJob, '{"parameter_id": "2_0_1", "parameters": 5}')
    assert advisor.generate_parameters(0) == advisor.get_previous_param("2_0_1") == 5
    assert not advisor.is_created_in_previous_exp("2_0_1")
    assert advisor.recover_parameter_id([{"parameter_id": 3, "parameters": {}}]) == 0
    assert imported("nni.utils").MetricType.REQUEST_PARAMETER == "REQUEST_PARAMETER"


def test_search_spaces_are_validated_by_nnis_call(imported: Imported) -> None:
    validate = imported("nni.common.hpo_utils").validate_search_space
    assert validate(SPACE, ["uniform"])
    assert not validate({"x": {"_type": "uniform", "_value": [1]}})
    with pytest.raises(ValueError, match="does not support x: uniform"):
        validate(SPACE, ["choice"], raise_exception=True)


ADVICE = {"parameter_source": "algorithm", "parameter_index": 0}


def _convert_advisor(imported: Imported) -> Any:
    base = imported("nni.runtime.msg_dispatcher_base").MsgDispatcherBase
    commands = imported("nni.runtime.tuner_command_channel").CommandType

    class Halving(base):  # type: ignore[misc, valid-type]
        """Two trials in a first round; a second round with the better one, once both have ended."""

        def __init__(self) -> None:
            super().__init__()
            self.results: dict[str, float] = {}
            self.heard: list[Any] = []
            self.left, self.credit, self.ended = 2, 0, 0

        def handle_initialize(self, data: Any) -> None:
            self.heard.append(data)

        def handle_request_trial_jobs(self, data: int) -> None:
            self.credit += data
            self.serve()

        def serve(self) -> None:
            while self.credit and self.left:
                self.left -= 1
                self.credit -= 1
                new = {**ADVICE, "parameter_id": f"0_{self.left}", "parameters": {"x": self.left}}
                self.send(commands.NewTrialJob, json.dumps(new))

        def handle_report_metric_data(self, data: dict[str, Any]) -> None:
            self.results[data["parameter_id"]] = json.loads(data["value"])

        def handle_trial_end(self, data: dict[str, Any]) -> None:
            self.heard.append((data["event"], json.loads(data["hyper_params"])["parameter_id"]))
            self.ended += 1
            if self.ended == 2:
                self.left = 1
                self.serve()

    return Halving()


def test_an_advisor_answers_the_requests_itself(imported: Imported) -> None:
    advisor = _convert_advisor(imported)
    advisor.update_search_space(SPACE)
    assert advisor.generate_multiple_parameters([0, 1, 2]) == [{"x": 1}, {"x": 0}]
    for number in (0, 1):
        advisor.receive_trial_result(number, {}, number / 2, trial_job_id=f"t{number}")
        advisor.trial_end(number, number == 0, trial_job_id=f"t{number}")
    assert advisor.results == {"0_1": 0.0, "0_0": 0.5}
    assert advisor.heard == [SPACE, ("SUCCEEDED", "0_1"), ("FAILED", "0_0")]
    # The third request was not forgotten: its trial came when both had ended.
    assert advisor.generate_parameters(2) == {"x": 0}
    with pytest.raises(NoMoreTrialError):
        advisor.generate_parameters(3)


def test_an_advisor_of_nni_2_answers_by_a_function(imported: Imported) -> None:
    protocol = imported("nni.runtime.protocol")

    class Counting(imported("nni.runtime.msg_dispatcher_base").MsgDispatcherBase):  # type: ignore[misc]
        def handle_initialize(self, data: Any) -> None:
            protocol.send(protocol.CommandType.Initialized, "")

        def handle_request_trial_jobs(self, data: int) -> None:
            for number in range(data):
                new = {**ADVICE, "parameter_id": number, "parameters": {"x": number}}
                protocol.send(protocol.CommandType.NewTrialJob, json.dumps(new))

        def handle_report_metric_data(self, data: dict[str, Any]) -> None:
            protocol.send(protocol.CommandType.KillTrialJob, json.dumps(data["trial_job_id"]))

    with pytest.raises(RuntimeError, match="there is no advisor here"):
        protocol.send(protocol.CommandType.Initialized, "")
    advisor = Counting()
    advisor.update_search_space(SPACE)
    assert advisor.generate_parameters(0) == {"x": 0}
    advisor.hear_intermediate(0, "t0", 0, 0.5)
    assert advisor.unwanted == {"t0"}


def test_an_advisors_error_ends_the_experiment(imported: Imported) -> None:
    with pytest.raises(RuntimeError, match="no data"):
        _convert_advisor(imported).report_error("no data")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("NNI_TRIAL_JOB_ID", "t1", "NNILITE_REAL_NNI=1 in the environment of the trial"),
        ("OTHER", "", "In a script, install the real package"),
    ],
)
def test_what_is_not_there_says_what_to_do_here(
    imported: Imported, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "nnilite._tuner_host", None)
    monkeypatch.delitem(sys.modules, "nnilite._tuner_host")
    for known in ("NNI_TRIAL_JOB_ID", "NNILITE_METRICS"):
        monkeypatch.delenv(known, raising=False)
    monkeypatch.setenv(name, value)
    imported("nni")
    with pytest.raises(ModuleNotFoundError, match=said):
        imported("nni.compression")


@pytest.mark.parametrize("name", ["choice", "function_choice", "qloguniform", "mutable_layer", "variable"])
def test_a_name_of_an_annotation_leads_to_the_search_space(imported: Imported, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"nni\.{name} is not .* annotation of NNI 1.*`nnictl config expand`"):
        getattr(imported("nni"), name)


def test_in_a_tuner_it_says_what_a_tuner_can_do(imported: Imported, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "nnilite._tuner_host", ModuleType("host"))
    imported("nni")
    with pytest.raises(ModuleNotFoundError, match=r"In a tuner, derive from nni\.tuner\.Tuner"):
        imported("nni.compression")


class Saving(nnilite.Tuner):
    """Says what is called, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def update_search_space(self, search_space: Any) -> None:
        self.said.append("space")

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        self.said.append("generate")
        return {}

    def import_data(self, data: Any) -> None:
        self.said.append("import")

    def load_checkpoint(self) -> None:
        self.said.append("load")

    def save_checkpoint(self) -> None:
        self.said.append("save")


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([Call(CallKind.GENERATE, 0, parameters={})], ["load", "generate", "save"]),
        ([Call(CallKind.IMPORT, value=[])], ["import", "save"]),
    ],
)
def test_checkpoints_are_loaded_at_a_resume_and_saved_at_the_end(calls: list[Call], said: list[str]) -> None:
    from dataclasses import asdict

    from nnilite._tuner_host.child import Child

    child = Child()
    child._tuner = tuner = Saving()
    child.answer({"do": "calls", "calls": [asdict(call) for call in calls]})
    assert child.answer({"do": "replay"}) == {"ok": None}
    assert child.answer({"do": "close"}) == {"ok": None}
    assert tuner.said == said


def test_an_example_of_nni_that_was_no_tuner_of_its_own_is_refused_by_that() -> None:
    from nnilite._plugins import lookup
    from nnilite.errors import PluginError

    with pytest.raises(PluginError, match=r"OpEvo was an example of NNI 2 .* as a choice between"):
        lookup.tuner_class("OpEvo")


def test_a_script_that_calls_nnictl_has_its_own_errors(imported: Imported, capsys: pytest.CaptureFixture[str]) -> None:
    hook = sys.excepthook
    imported("nni.tools.nnictl.command_calls").carry_out("platform", "list", "--json")
    assert sys.excepthook is hook
    assert "local" in capsys.readouterr().out
