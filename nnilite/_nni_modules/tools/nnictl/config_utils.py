"""`nni.tools.nnictl.config_utils`: all experiments of this user."""

from __future__ import annotations

from typing import Any

from nnilite import Experiment

from .command_calls import answer_of

__path__: list[str] = []  # see `nni._Elsewhere`

__all__ = ["Config", "Experiments"]


class Experiments:
    """The list of experiments. It is read only: nnilite keeps it itself."""

    def get_all_experiments(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each experiment, by its id."""
        return {one["id"]: one for one in Experiment().get_all_experiments_metadata()}


class Config:
    """The configuration of one experiment."""

    def __init__(self, experiment_id: str, log_dir: str | None = None) -> None:
        self.experiment_id = experiment_id
        self.refresh_config()

    def refresh_config(self) -> None:
        """Read the configuration again."""
        self.config = answer_of("config", "show", self.experiment_id)

    def get_config(self) -> Any:
        """Return the configuration, without its secrets."""
        return self.config
