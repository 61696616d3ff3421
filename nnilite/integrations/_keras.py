"""Keras 3."""

from __future__ import annotations

from typing import Any

from keras.callbacks import Callback

import nnilite
from nnilite.integrations._reporting import Final, Progress, Report


class KerasCallback(Callback):
    """Reports a metric of each epoch of `fit`, for example "val_accuracy"."""

    def __init__(self, metric: str, *, final: Final = "last", report: Report | None = None) -> None:
        super().__init__()
        self._progress = Progress("Keras", metric, final, report)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Stop the training within an epoch, too."""
        if nnilite.should_stop():
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Report."""
        if self._progress.report(logs or {}):
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        """Report the final result."""
        self._progress.finish()
