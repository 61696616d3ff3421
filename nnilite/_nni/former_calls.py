"""What programs of earlier versions of NNI, and programs that guess, ask of `Experiment`: taken, or what there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from nnilite.config import AlgorithmConfig, ExperimentConfig, ServiceConfig
from nnilite.tuner import Tuner

_CONFIGS = ("config", "training_service", "platform", "experiment_config")
_METHODS = {
    "get_experiment_status": "get_status()",
    "get_trial_jobs": "list_trial_jobs()",
    "get_all_experiments_id": "get_all_experiments_metadata()",
    "connect_experiment": "Experiment.connect(port)",
    "start_experiment": "Experiment(ExperimentConfig.load(FILE)).start(port)",
    "run_experiment": "run(port)",
    "resume_experiment": "Experiment.resume(id)",
    "view_experiment": "Experiment.view(id)",
    "stop_experiment": "stop()",
    "nni_stop": "stop()",
    "get_results": "export_data()",
    "get_result": "export_data()",
    "get_best_trial": "best",
    "export_top_trial": "best",
    "export_top_trials": "export_data()",
    "get_experiment_metrics": "get_job_metrics()",
    "get_metrics": "get_job_metrics()",
    "get_best_parameters": "best",
    "get_best_params": "best",
    "best_params": "best",
    "get_best_model": "best",
    "export_top_models": "export_data()",
    "wait": "run(port), which waits",
    "wait_completion": "run(port), which waits",
    "wait_for_completion": "run(port), which waits",
    "update_concurrency": "update_trial_concurrency(value)",
    "update_trial_num": "update_max_trial_number(value)",
    "join": "run(port), which waits",
}
"""What NNI 1 and 2 called them, and what people guess: what is here."""


def read_arguments(first: Any, second: Any, others: dict[str, Any]) -> tuple[ExperimentConfig | None, str | None]:
    """Return the config and the id of an Experiment, whatever version of NNI its arguments are of.

    NNI 2.0 had `Experiment(tuner, training_service)` and `Experiment(tuner, config)`, NNI 2.1 to 2.9 `config` and
    `training_service`, NNI 3 has `config_or_platform` and `id`. Raises: ConfigError, TypeError
    """
    tuner, given = others.pop("tuner", None), first
    if isinstance(first, (Tuner, AlgorithmConfig)):
        tuner, given, second = first, second, None
    for name in [one for one in _CONFIGS if one in others]:
        if given is not None:
            raise TypeError(f"Experiment takes one config or platform, and {name} is a second one")
        given = others.pop(name)
    for name in others:
        field = name if name in ExperimentConfig.__dataclass_fields__ else ""
        cure = f"set experiment.config.{field}" if field else "it takes config_or_platform, id and quiet"
        raise TypeError(f"Experiment takes no {name!r}; {cure}")
    config = _make_config(given)
    if tuner is not None:
        config = config or ExperimentConfig()
        config.tuner = _make_algorithm(tuner)
    return config, second


def _make_config(given: Any) -> ExperimentConfig | None:
    if given is None or hasattr(given, "checked"):
        config: ExperimentConfig | None = given
        return config
    if isinstance(given, str) and given.endswith((".yaml", ".yml")):
        raise TypeError(f"Experiment takes no path; write Experiment(ExperimentConfig.load({given!r}))")
    if isinstance(given, (str, list, tuple)) and all(isinstance(one, str) for one in given):
        return ExperimentConfig(given if isinstance(given, str) else list(given))
    if isinstance(given, (ServiceConfig, list, tuple)):
        return ExperimentConfig(training_service=given)
    if isinstance(given, Mapping):
        raise TypeError("Experiment takes no mapping; write Experiment(nnilite.config.from_dict(...))")
    raise TypeError(f"Experiment takes an ExperimentConfig or the name of a platform, not {type(given).__name__}")


def _make_algorithm(given: Any) -> AlgorithmConfig:
    if isinstance(given, AlgorithmConfig):
        return given
    if isinstance(given, str):
        return AlgorithmConfig(name=given)
    if isinstance(given, Mapping):
        return AlgorithmConfig(**given)
    name = type(given).__name__
    raise TypeError(
        f"an experiment makes its own {name}, in a process of its own; write experiment = Experiment('local'), "
        "experiment.config.tuner.name = 'TPE' (or class_name = 'module.Class'), and its arguments in tuner.class_args"
    )


def explain_no_method(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence on an attribute that Experiment has not: what to write for it."""
    found = _METHODS.get(name)
    close = difflib.get_close_matches(name, known, n=1)
    return f"; write {found}" if found else f"; did you mean {close[0]}?" if close else ""


__all__ = ["explain_no_method", "read_arguments"]
