"""What `Experiment.run` does with a function: it begins the experiment, and follows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nnilite._functions.function_run import FunctionExperiment, FunctionRun, prepare
from nnilite._functions.search_on_service import RunTarget, config_of
from nnilite._search.plan import Plan
from nnilite._search.progress import SearchProgress
from nnilite.config import ExperimentConfig
from nnilite.errors import Conflict, NniliteError
from nnilite.records import ExperimentState, Json


def planned(  # noqa: PLR0913  those after the first three are words in a call
    config: ExperimentConfig,
    experiment: str | None,
    function: Callable[..., Json],
    *,
    space: Mapping[str, Any] | None = None,
    trials: int | None = None,
    concurrency: int | None = None,
    timeout_s: float | None = None,
    optimize: str | Mapping[str, str] | None = None,
    python: str | None = None,
    code_directory: str | Path | None = None,
) -> FunctionExperiment:
    """Prepare the experiment. Raises: ConfigError, Conflict."""
    if space is None:
        space = config.search_space
    if space is None and config.search_space_file is not None:
        space = config.checked(paths=False).search_space
    if space is None:
        raise Conflict("the experiment has no search space: give run(..., space={...}).")
    where = RunTarget(config, trials, concurrency, timeout_s)
    return prepare(
        config_of(where, Plan(space, "", _goal_of(config) if optimize is None else optimize)),
        function,
        experiment=experiment,
        python=python,
        code_directory=code_directory,
    )


def _goal_of(config: ExperimentConfig) -> str | Mapping[str, str]:
    """Return what the config's tuner optimizes. The check of the config says what is wrong with other values."""
    arguments = getattr(config.tuner, "class_args", {})
    mode, objectives = (arguments.get(word) for word in ("optimize_mode", "objectives"))
    if isinstance(objectives, Mapping):
        return objectives
    return mode if isinstance(mode, str) else "maximize"


def follow(run: FunctionRun, timeout_s: float | None, shown: SearchProgress) -> None:
    """Follow an experiment to its end. Raises: NniliteError if that is an ERROR, or as `FunctionRun.follow` does."""
    shown.begin()
    try:
        profile = run.follow(None if timeout_s is None else time.monotonic() + timeout_s)
    finally:
        shown.over()
    if profile["state"] == ExperimentState.ERROR.value:
        raise NniliteError(f"the experiment ended with an error: {profile['reason']}")
