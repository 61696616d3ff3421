"""`nni.experiment.config.convert`: from NNI's older format to the present one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnilite.config import from_dict

__path__: list[str] = []  # see `nni._Elsewhere`
__all__ = ["to_v2"]


def to_v2(v1: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config in the older format as one in the present one, with its defaults. Raises: ConfigError."""
    return from_dict(v1).checked(paths=False).json(secrets=True)
