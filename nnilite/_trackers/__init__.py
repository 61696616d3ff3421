"""Copies an experiment into the trackers that its config names: each attempt of a trial becomes a run there.

A tracker is fed by a process of its own, which only reads the experiment's database. So it can hold up nothing, and
what it could not send while its server was away is sent later: the database has it.

feed              the loop: what is new in the database since the position that was reached
runs              what every tracker can do, and what a run and a point of its curves are
mlflow_runs       MLflow
tensorboard_runs  TensorBoard
wandb_runs        Weights & Biases

`nnilite._side_processes` starts these processes and keeps them running, as it does those of webhooks.
"""

from __future__ import annotations

from pathlib import Path

from nnilite._side_processes.supervision import SupervisedProcess
from nnilite.config import CheckedConfig


def list_trackers(directory: Path, config: CheckedConfig) -> list[SupervisedProcess]:
    """Return the processes that feed the trackers of a config."""
    return [
        SupervisedProcess(
            f"{tracker.name} (tracker)",
            ("nnilite._trackers", str(directory), str(number)),
            directory / "log" / f"tracker-{tracker.name}.log",
        )
        for number, tracker in enumerate(config.trackers)
    ]
