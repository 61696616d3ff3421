"""A Grid Engine of one node for the tests of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nnilite.service import ServiceContext
from nnilite.testing.bench import HOSTILE
from nnilite_batch import BatchConfig, BatchSchedulerService
from platforms.gridengine.cell import GridHere, missing


@pytest.fixture(scope="session")
def grid_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridHere]:
    """A Grid Engine whose node is this machine."""
    if missing():
        pytest.skip(missing())
    cell = GridHere(tmp_path_factory.mktemp("grid"))
    try:
        cell.open()
        yield cell
    finally:
        cell.close()


@pytest.fixture
def maker(grid_here: GridHere, tmp_path: Path) -> Callable[..., Callable[[ServiceContext], BatchSchedulerService]]:
    """Makes services of that Grid Engine, with these fields of the section."""

    def make(**fields: Any) -> Callable[[ServiceContext], BatchSchedulerService]:
        usual = {"directory": str(tmp_path / HOSTILE / "shared"), "nni_manager_ip": "127.0.0.1", "keep": "nothing"}
        usual |= {"scheduler": "gridengine", "scheduler_path": str(grid_here.bin)}
        config = BatchConfig(**{**usual, **fields})
        defaults = {"callback": "log"} if fields.get("nni_manager_ip", "") is None else {}
        return lambda context: BatchSchedulerService("batch", config, replace(context, defaults=defaults))

    return make
