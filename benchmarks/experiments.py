"""Starting real experiments for the benchmarks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnilite import _launch
from nnilite._client import Client
from nnilite._registry import Entry
from nnilite.config import from_dict

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


@contextlib.contextmanager
def experiment(code: Path, command: str, trials: int, concurrency: int = 2) -> Iterator[tuple[Entry, Client]]:
    """A local experiment with the Random tuner, stopped at the end."""
    config: dict[str, Any] = {
        "searchSpace": SPACE,
        "trialCommand": command,
        "trialCodeDirectory": str(code),
        "trialConcurrency": concurrency,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "local"},
    }
    entry = _launch.create(from_dict(config, code), options=_launch.ManagerOptions(port=0), detach=False)
    with Client(entry.url or "", _launch.token(entry)) as client:
        try:
            yield entry, client
        finally:
            client.stop()
