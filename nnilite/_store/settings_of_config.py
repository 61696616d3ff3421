"""The settings with which the rules begin, from an experiment's config."""

from __future__ import annotations

from collections.abc import Mapping

from nnilite._engine import messages
from nnilite._plugins import lookup
from nnilite.config import CheckedConfig
from nnilite.errors import PluginError
from nnilite.records import Json
from nnilite.tuning.class_args import default_of
from nnilite.tuning.objectives import configured
from nnilite.tuning.result_constraints import ResultConstraints


def make_settings(config: CheckedConfig, maximize: bool) -> messages.Settings:
    """Return the settings of the rules, from the config."""
    return messages.Settings(
        concurrency=config.trial_concurrency,
        max_trials=config.max_trial_number,
        max_duration_s=config.max_experiment_duration,
        max_trial_duration_s=config.max_trial_duration,
        max_cost=config.max_cost,
        stop_at_value=config.stop_at_value,
        prices={name: cost for name, _, _ in config.services if (cost := config.share(name).cost) is not None},
        move_after_s=config.move_after,
        retries_lost=config.max_trial_retries,
        retries_failed=config.retry_failed,
        retry_exit_codes=frozenset(config.retry_on),
        max_failed=config.max_failed_trials,
        stop_on_same_error=config.stop_on_same_error,
        silence_s=config.worker_silence,
        maximize=maximize,
        objectives=tuple(configured(config.tuner.class_args)) or ("default",),
        assess=config.assessor is not None,
        violated=ResultConstraints.parse(config.result_constraints).violated,
    )


def is_maximizing(tuner: Mapping[str, Json]) -> bool:
    """Return whether larger metrics are better, by the tuner's arguments or else by its own default.

    Where `default` is one of several objectives, its own direction says it.
    """
    class_args = tuner.get("classArgs") or {}
    mode = configured(class_args).get("default") or class_args.get("optimize_mode")
    if mode is None and tuner.get("name"):
        try:
            mode = default_of(lookup.tuner_class(str(tuner["name"])), "optimize_mode")
        except PluginError:
            # The tuner host will report what is wrong with this tuner.
            return True
    return mode != "minimize"
