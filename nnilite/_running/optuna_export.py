"""An experiment as a study of optuna, from what its manager says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nnilite._running import reading
from nnilite._running.manager_client import Client
from nnilite.plot import optuna_study
from nnilite.plot.optuna_study import PlottedTrial

if TYPE_CHECKING:
    from optuna.study import Study


def study_of(manager: Client) -> Study:
    """Return all trials of the experiment, with its name, objectives and directions. Raises: NniliteError."""
    profile = manager.profile()
    return optuna_study.study_of(profile["id"], profile["searchSpace"], profile["objectives"], _read_ran(manager))


def _read_ran(manager: Client) -> Iterator[PlottedTrial]:
    reported = reading.read_intermediate_results(manager)
    for one in manager.trials():
        trial = reading.trial_of(one)
        yield PlottedTrial(trial, reported.get((trial.id, trial.attempt), ()))
