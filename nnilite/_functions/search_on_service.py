"""A search whose function runs on a training service, by a manager of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnilite._functions.function_run import FunctionRun, change_limits, duration_s, prepare, running
from nnilite._functions.run_targets import RunsOn, config_on
from nnilite._running.manager_connection import Unreachable
from nnilite._search.plan import Plan
from nnilite._search.progress import SearchProgress
from nnilite._search.search_result import SearchResult
from nnilite.errors import NniliteError
from nnilite.records import ExperimentState, Json, Trial

if TYPE_CHECKING:
    from nnilite.config import ExperimentConfig

_TRIALS = 100


@dataclass(frozen=True)
class RunTarget:
    """Where and how a search runs: see `Search.run`. None: as the config says, or by default."""

    on: RunsOn
    trials: int | None = None
    concurrency: int | None = None
    timeout_s: float | None = None
    id: str | None = None
    python: str | None = None
    code_directory: str | Path | None = None
    progress: bool | None = None
    first: Sequence[Json] = ()


def run(
    where: RunTarget,
    function: Callable[..., Any],
    plan: Plan,
    known: Sequence[Trial],
    begun: Callable[[FunctionRun], None],
    ended: Callable[[Trial], None],
    learn: Callable[[SearchResult], None],
) -> None:
    """Run a search to its end, and call `learn` with what it has found, also before an error.

    Raises: NniliteError, in the cases that `Search.run` describes.
    """
    config = config_of(where, plan)
    results = [{"parameter": one.parameters, "value": one.value} for one in known if one.value is not None]
    experiment = prepare(
        config,
        function,
        experiment=where.id,
        python=where.python,
        code_directory=where.code_directory,
        known=results,
    )
    deadline = None if where.timeout_s is None else time.monotonic() + where.timeout_s
    shown: list[SearchProgress] = []

    def note(trial: Trial) -> None:
        for one in shown:
            one.show_end(trial)
        ended(trial)

    with running(experiment, note, _make_progress_writer(where.progress)) as run:
        change_limits(run.client, experiment)
        begun(run)
        shown.append(SearchProgress(run, config.max_trial_number, where.progress))
        shown[0].begin()
        try:
            profile = run.follow(deadline)
        finally:
            try:
                learn(run.result())
            except Unreachable:  # it was stopped, or its end is what is being raised
                pass
            shown[0].over()
    if profile["state"] == ExperimentState.ERROR.value:
        raise NniliteError(f"{profile['reason']}. `nnictl view {experiment.id}` shows its trials.".replace("..", "."))


def config_of(where: RunTarget, plan: Plan) -> ExperimentConfig:
    """Return the config of the search. Raises: ConfigError, Conflict."""
    config = config_on(where.on)
    plan.fill(config)
    if where.trials is not None or config.max_trial_number is None:
        config.max_trial_number = _TRIALS if where.trials is None else where.trials
    if where.concurrency is not None or getattr(config, "trial_concurrency", None) is None:
        config.trial_concurrency = where.concurrency or 1
    if where.first:
        config.first_trials = [*config.first_trials, *where.first]
    if where.timeout_s is not None:
        config.max_experiment_duration = duration_s(where.timeout_s)
    return config


def _make_progress_writer(progress: bool | None) -> Callable[[str], None]:
    from nnilite._notebook import live_output

    def write(sentence: str) -> None:
        if progress is not False:
            live_output.write_line(sentence)

    return write
