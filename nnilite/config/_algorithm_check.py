"""Tries out tuner and assessor before anything starts, so that a wrong argument is reported with its line."""

from __future__ import annotations

import importlib.util
from typing import Any

from nnilite._plugins import lookup
from nnilite.config._config_reading import At, ConfigReading
from nnilite.config._nested_configs import AlgorithmConfig
from nnilite.errors import ConfigError, Place, PluginError
from nnilite.tuning.class_args import construct, default_of


def construct_all(tuner: AlgorithmConfig | None, assessor: AlgorithmConfig | None, reading: ConfigReading) -> list[str]:
    """Make one instance of each installed algorithm. Return warnings about them. Raises: ConfigError.

    A user's own algorithm is left to the tuner host, as its constructor may do anything.
    """
    tuner_class = _construct("tuner", tuner, At(reading, ("tuner",)))
    assessor_class = _construct("assessor", assessor, At(reading, ("assessor",)))
    reading.finish()
    modes = (_mode(tuner, tuner_class), _mode(assessor, assessor_class))
    if None in modes or modes[0] == modes[1]:
        return []
    return [
        f"optimize_mode is {modes[0]} for the tuner, but {modes[1]} for the assessor; set it in the classArgs of both"
    ]


def _construct(word: str, algorithm: AlgorithmConfig | None, here: At) -> type | None:
    """Return the class of an installed algorithm, after one instance was made of it."""
    if not algorithm or not algorithm.name:
        return None
    tuner = word == "tuner"
    if lookup.is_own(lookup.TUNERS if tuner else lookup.ASSESSORS, algorithm.name):
        return None
    find_class = lookup.tuner_class if tuner else lookup.assessor_class
    try:
        found = find_class(algorithm.name)
        construct(found, algorithm.class_args)
    except PluginError as error:
        here.below("name").fault(str(error))
    except ConfigError as error:
        here.note_error(error)
    else:
        return found
    return None


def _mode(algorithm: AlgorithmConfig | None, cls: type | None) -> Any:
    """Return the optimize mode of an algorithm, from its arguments or by default; None if it is not known."""
    given = algorithm.class_args.get("optimize_mode") if algorithm else None
    return default_of(cls, "optimize_mode") if given is None and cls is not None else given


_LIBRARIES = {"mlflow": "mlflow", "tensorboard": "tensorboardX", "wandb": "wandb"}


def look_for_libraries(trackers: list[str], *, webhooks: bool = False) -> None:
    """Check whether the library of each tracker is installed, without importing it. Raises: ConfigError."""
    if webhooks and importlib.util.find_spec("requests") is None:
        raise ConfigError(
            "needs requests, which is not installed; `pip install 'nnilite[http]'`", Place(field="webhooks")
        )
    for name in trackers:
        if importlib.util.find_spec(_LIBRARIES[name]) is None:
            raise ConfigError(
                f"{name} needs {_LIBRARIES[name]}, which is not installed; `pip install 'nnilite[{name}]'`",
                Place(field="trackers"),
            )
