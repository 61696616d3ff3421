"""Libraries whose wheels need what not every system has."""

from __future__ import annotations

from typing import Any

import pytest


def import_or_skip(name: str) -> Any:
    """Return a module. The test is skipped where it is missing, or lacks a library of the system."""
    try:
        return pytest.importorskip(name, exc_type=ImportError)
    except OSError as error:  # LightGBM without libgomp1, which a small Debian has not
        pytest.skip(f"{name} cannot be loaded: {error}")
