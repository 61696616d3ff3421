"""Answers questions about the tuners and assessors that `import nni` finds, as JSON.

`nni_comparison.py` runs this program twice: by a Python that has NNI 3.0, and by its own, where `nni` is nnilite's.
It reads lines `[question, argument, ...]`, and prints an answer to each.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from typing import Any
from unittest.mock import MagicMock

import numpy as np

MARK = "answer: "
"""Begins a line that holds an answer; tuners print as well."""
ASSESSORS = {
    "Medianstop": "medianstop_assessor.MedianstopAssessor",
    "Curvefitting": "curvefitting_assessor.CurvefittingAssessor",
}
TUNERS = {
    "TPE": "tpe_tuner.TpeTuner",
    "Random": "random_tuner.RandomTuner",
    "GridSearch": "gridsearch_tuner.GridSearchTuner",
    "Batch": "batch_tuner.BatchTuner",
    "Evolution": "evolution_tuner.EvolutionTuner",
    "Hyperopt": "hyperopt_tuner.HyperoptTuner",
    "GP": "gp_tuner.GPTuner",
    "Metis": "metis_tuner.MetisTuner",
    "PBT": "pbt_tuner.PBTTuner",
    "DNGO": "dngo_tuner.DNGOTuner",
    "SMAC": "smac_tuner.SMACTuner",
    "Hyperband": "hyperband_advisor.Hyperband",
    "BOHB": "bohb_advisor.bohb_advisor.BOHB",
}
MODELS = ("torch", "pybnn", "smac", "ConfigSpaceNNI")
"""Packages with the models of NNI's DNGO and SMAC. Where they are missing, a stand-in shows what needs no model."""


def get_class(name: str) -> Any:
    module, _, known = {**TUNERS, **ASSESSORS}[name].rpartition(".")
    return getattr(_import_with_stand_ins("nni.algorithms.hpo." + module), known)


def _import_with_stand_ins(path: str) -> Any:
    """Import a module. Stand-ins are there only meanwhile: SciPy asks a loaded torch about arrays."""
    made: list[str] = []
    try:
        while True:
            try:
                return importlib.import_module(path)
            except ModuleNotFoundError as missing:
                if not missing.name or missing.name.partition(".")[0] not in MODELS:
                    raise
                sys.modules[missing.name] = MagicMock()
                made.append(missing.name)
    finally:
        for name in made:
            del sys.modules[name]


def list_arguments(name: str) -> list[Any]:
    """Return names and defaults of the constructor's arguments, in their order. Raises: ImportError"""
    about = inspect.signature(get_class(name).__init__).parameters.values()
    return [[one.name, None if one.default is one.empty else one.default] for one in about][1:]


def build(name: str, arguments: dict[str, Any]) -> bool:
    """Return whether a tuner or assessor takes these arguments."""
    try:
        get_class(name)(**arguments)
    except Exception:  # noqa: BLE001 - NNI raises what Python happens to
        return False
    return True


def judge(name: str, arguments: list[Any], curves: list[list[float]], failed: list[int]) -> list[list[bool]]:
    """Return whether each trial goes on after each of its results, one trial after the other."""
    assessor, verdicts = get_class(name)(*arguments), []
    for number, curve in enumerate(curves):
        told = [assessor.assess_trial(str(number), curve[: k + 1]).value for k in range(len(curve))]
        assessor.trial_end(str(number), number not in failed)
        verdicts.append([bool(one) for one in told])
    return verdicts


def draw(name: str, arguments: list[Any], space: Any, count: int) -> list[Any]:
    """Return what a tuner proposes while it knows no result."""
    tuner = get_class(name)(*arguments)
    tuner.update_search_space(space)
    return tuner.generate_multiple_parameters(list(range(count)), st_callback=None)


def draw_after(name: str, arguments: list[Any], space: Any, results: list[Any], count: int) -> list[Any]:
    """Return what a tuner proposes that knows these results, and learns no more."""
    tuner = get_class(name)(*arguments)
    tuner.update_search_space(space)
    tuner.import_data(results)
    return [tuner.generate_parameters(number) for number in range(count)]


def draw_budgets(name: str, arguments: list[Any], space: Any, count: int) -> list[Any]:
    """Return the parameters of each trial, where a trial ends with its x as the result before the next one begins."""
    kind = get_class(name)
    run = _ask_tuner if hasattr(kind, "generate_parameters") else _ask_advisor
    return run(kind, arguments, space, count)


def exhaust(name: str, arguments: list[Any], space: Any, count: int) -> list[Any]:
    """Return what a tuner proposes one by one, at most `count` times, and "NoMoreTrialError" where it ends before."""
    import nni

    tuner, seen = get_class(name)(*arguments), []
    tuner.update_search_space(space)
    for number in range(count):
        try:
            parameters = tuner.generate_parameters(number)
        except nni.NoMoreTrialError:
            return [*seen, "NoMoreTrialError"]
        seen.append(parameters)
        tuner.receive_trial_result(number, parameters, float(number))
        tuner.trial_end(number, True)
    return seen


def _ask_tuner(kind: Any, arguments: list[Any], space: Any, count: int) -> list[Any]:
    tuner, seen = kind(*arguments), []
    tuner.update_search_space(space)
    for number in range(count):
        parameters = tuner.generate_parameters(number)
        seen.append(dict(parameters))
        tuner.receive_trial_result(number, parameters, parameters["x"])
        tuner.trial_end(number, True)
    return seen


def _ask_advisor(kind: Any, arguments: list[Any], space: Any, count: int) -> list[Any]:
    from nni.runtime.tuner_command_channel import CommandType

    sent: list[Any] = []
    advisor = kind(*arguments)
    advisor.send = lambda command, data: sent.append(json.loads(data)) if command is CommandType.NewTrialJob else None
    advisor.is_created_in_previous_exp = lambda number: False
    advisor.handle_initialize(space)
    seen: list[Any] = []
    while len(seen) < count:
        advisor.handle_request_trial_jobs(1)
        trial = sent.pop(0)
        seen.append(trial["parameters"])
        job = {"trial_job_id": str(len(seen)), "parameter_id": trial["parameter_id"]}
        value = json.dumps(trial["parameters"]["x"])
        advisor.handle_report_metric_data({**job, "type": "FINAL", "sequence": 0, "value": value})
        advisor.handle_trial_end({**job, "event": "SUCCEEDED", "hyper_params": json.dumps(trial)})
    return seen


def _as_plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


class _Repeatable(np.random.RandomState):
    """Has a seed where some of NNI's tuners give none."""

    def __init__(self, seed: Any = 0) -> None:
        super().__init__(seed)


if __name__ == "__main__":
    np.random.RandomState = _Repeatable  # type: ignore[misc]
    os.environ["NNI_TUNER_COMMAND_CHANNEL"] = "ws://_unittest_nobody"  # by this name NNI connects to nobody
    QUESTIONS = {
        asked.__name__: asked for asked in (list_arguments, build, judge, draw, draw_after, draw_budgets, exhaust)
    }
    for line in sys.stdin:
        question, *arguments = json.loads(line)
        np.random.seed(0)  # an answer depends on nothing that was asked before
        answer = QUESTIONS[question](*arguments)
        sys.stdout.write(MARK + json.dumps(answer, default=_as_plain) + "\n")
        sys.stdout.flush()
