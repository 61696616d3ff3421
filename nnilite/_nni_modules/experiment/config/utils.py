"""`nni.experiment.config.utils`: the folder of relative paths, and times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnilite.config import ExperimentConfig
from nnilite.units import parse_duration_s as parse_time

__path__: list[str] = []  # see `nni._Elsewhere`
__all__ = ["get_base_path", "is_missing", "parse_time", "set_base_path", "unset_base_path"]


def set_base_path(path: str | Path) -> None:
    """Let relative paths of the configs that are made from now on begin at this folder."""
    ExperimentConfig._base_of_new = Path(path).absolute()


def unset_base_path() -> None:
    """Let relative paths begin at the current folder again."""
    ExperimentConfig._base_of_new = None


def get_base_path() -> Path:
    """Return the folder at which relative paths of new configs begin."""
    return ExperimentConfig._base_of_new or Path.cwd()


def is_missing(value: Any) -> bool:
    """Return whether a field was never set; it is None then."""
    return value is None
