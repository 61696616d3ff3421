"""Weights & Biases: one run for each attempt of a trial, all in the group of the experiment."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from nnilite._trackers.runs import FINAL, CurvePoint, Run, Runs


class WandbRuns(Runs):
    """Runs of `project`. Offline, they are written to `directory`, and `wandb sync` sends them.

    Offline a run that begins again is rewritten; online the server leaves out the steps that it has.
    """

    def __init__(self, directory: Path, project: str, mode: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._project, self._mode = directory, project, mode
        self._open: dict[str, Any] = {}

    def begin(self, run: Run) -> None:
        import wandb

        if self._mode == "offline":
            for left in (self._directory / "wandb").glob(f"offline-run-*-{run.key}"):
                shutil.rmtree(left)
        self._open[run.key] = wandb.init(
            project=self._project,
            group=run.experiment,
            name=run.name,
            id=run.key,
            resume="allow" if self._mode == "online" else None,
            dir=str(self._directory),
            mode="online" if self._mode == "online" else "offline",
            config=dict(run.parameters),
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True),
        )

    def send(self, run: Run, points: Sequence[CurvePoint]) -> None:
        opened = self._open[run.key]
        for step, group in groupby(points, key=lambda point: point.step):
            values = {point.key: point.value for point in group}
            opened.log(values, step=step)
            opened.summary.update({key: value for key, value in values.items() if key.startswith(FINAL)})

    def end(self, run: Run, state: str) -> None:
        opened = self._open.pop(run.key)
        opened.summary["state"] = state
        opened.finish(exit_code=0 if state == "SUCCEEDED" else 1)

    def close(self) -> None:
        import wandb

        for opened in self._open.values():
            opened.finish()
        # W&B writes in a process of its own, which may be late on a busy machine; this waits for its end.
        wandb.teardown()
