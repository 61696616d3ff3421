"""A disk in trouble for the programs of one test."""

from __future__ import annotations

from pathlib import Path

import pytest

from platforms.disk.disk import Disk, NoDisk


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        return Disk(folder)
    except NoDisk as reason:
        pytest.skip(str(reason))
