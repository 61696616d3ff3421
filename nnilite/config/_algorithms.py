"""Trying out tuner and assessor before anything starts, so that a wrong argument is found at its line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nnilite import _plugins
from nnilite.class_args import construct
from nnilite.config._reading import At, Reading
from nnilite.config._source import Source
from nnilite.errors import ConfigError, PluginError

if TYPE_CHECKING:
    from nnilite.config._experiment import ExperimentConfig


def construct_all(config: ExperimentConfig, source: Source) -> None:
    """Make one instance of each installed algorithm. Raises: ConfigError.

    One's own, by class or registered, is left to the tuner host, as it may do anything when it is made.
    """
    reading = Reading(source, config._base)
    _construct("tuner", config.tuner, At(reading, ("tuner",)))
    _construct("assessor", config.assessor, At(reading, ("assessor",)))
    reading.finish()


def _construct(word: str, algorithm: Any, here: At) -> None:
    if not algorithm or not algorithm.name:
        return
    tuner = word == "tuner"
    if _plugins.is_own(_plugins.TUNERS if tuner else _plugins.ASSESSORS, algorithm.name):
        return
    lookup = _plugins.tuner_class if tuner else _plugins.assessor_class
    try:
        construct(lookup(algorithm.name), algorithm.class_args)
    except PluginError as error:
        here.below("name").fault(str(error))
    except ConfigError as error:
        here.take(error)
