"""Starting real experiments for the benchmarks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnilite._experiments import registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import launch
from nnilite._running.manager_client import Client
from nnilite.config import from_dict
from nnilite.services.keeper_folder import KeeperFolder

_END_S = 30.0
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


@contextlib.contextmanager
def experiment(
    code: Path, command: str, trials: int, concurrency: int = 2, service: Mapping[str, Any] | None = None
) -> Iterator[tuple[RegistryEntry, Client]]:
    """An experiment with the Random tuner, stopped at the end. `service`: its training service, else the local one."""
    config: dict[str, Any] = {
        "searchSpace": SPACE,
        "trialCommand": command,
        "trialCodeDirectory": str(code),
        "trialConcurrency": concurrency,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random"},
        "trainingService": service or {"platform": "local"},
    }
    entry = launch.create(from_dict(config, code), options=launch.ManagerOptions(port=0), detach=False)
    with Client(entry.url or "", launch.token(entry)) as client:
        try:
            yield entry, client
        finally:
            end(entry, client)


def end(entry: RegistryEntry, client: Client) -> None:
    """Stop the experiment, and wait until nothing is written to its folder any more."""
    client.stop()
    until = time.monotonic() + _END_S
    while _is_written_to(entry.directory) and time.monotonic() < until:
        time.sleep(0.05)


def _is_written_to(directory: Path) -> bool:
    """Whether the manager or a keeper is at work in the experiment's folder: one of them may outlive the other.

    A keeper that is told to end tries once more to deliver, and then writes down what it has delivered.
    """
    attempts = [KeeperFolder(path) for path in directory.glob("trials/*/*")]
    return registry.is_alive(directory) or any(attempt.has_keeper() for attempt in attempts)
