"""TensorBoard: one folder of event files for each run, which `tensorboard --logdir` shows side by side."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnilite._trackers.runs import FINAL, CurvePoint, Run, Runs


class TensorBoardRuns(Runs):
    """Event files in `directory`. A run that begins again is rewritten from its first point."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writers: dict[str, Any] = {}
        self._last: dict[str, dict[str, float]] = {}

    def begin(self, run: Run) -> None:
        from tensorboardX import SummaryWriter

        folder = self._directory / run.experiment / run.name
        shutil.rmtree(folder, ignore_errors=True)
        self._writers[run.key] = SummaryWriter(str(folder), flush_secs=5)
        self._last[run.key] = {}
        self._writers[run.key].add_text("parameters", ", ".join(f"{k}={v}" for k, v in run.parameters.items()))

    def send(self, run: Run, points: Sequence[CurvePoint]) -> None:
        writer = self._writers[run.key]
        for point in points:
            writer.add_scalar(point.key, point.value, point.step, walltime=point.time)
            if point.key.startswith(FINAL):
                self._last[run.key][point.key] = point.value
        writer.flush()

    def end(self, run: Run, state: str) -> None:
        from tensorboardX.summary import hparams

        writer, results = self._writers.pop(run.key), self._last.pop(run.key)
        writer.add_text("state", state)
        if results:
            given = {name: value if value is not None else "none" for name, value in run.parameters.items()}
            # `add_hparams` would open a second file, and in the same second one with the same name.
            for summary in hparams(given, results):
                writer.file_writer.add_summary(summary)
        writer.close()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
