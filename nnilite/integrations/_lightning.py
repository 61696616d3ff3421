"""Lightning, under either of its names."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

import nnilite
from nnilite.integrations._reporting import Final, Progress, Report


class LightningCallback(Callback):
    """Reports a metric that the module has logged by `self.log`, once an epoch, after its validation if it has one.

    All processes of a training stop after the same batch as soon as one of them should.
    """

    def __init__(self, metric: str, *, final: Final = "last", report: Report | None = None) -> None:
        self._progress = Progress("Lightning", metric, final, report)
        self._validated = False

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Note that there are new numbers."""
        self._validated = not trainer.sanity_checking

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Stop the training within an epoch, too."""
        if _agree_to_stop(trainer, nnilite.should_stop()):
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report from the first of the processes."""
        new = self._validated or not trainer.enable_validation
        self._validated = False
        stop = new and trainer.is_global_zero and self._progress.report(trainer.callback_metrics)
        if _agree_to_stop(trainer, stop):
            trainer.should_stop = True

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the final result."""
        if trainer.is_global_zero:
            self._progress.finish()


def _agree_to_stop(trainer: Any, stop: bool) -> bool:
    """Return whether any process should stop, the same answer in all of them.

    The signal reaches each process between different batches. If one stops alone, the
    others wait without end in their next collective operation.
    """
    # Former versions of Lightning can only say whether all processes agree.
    return not trainer.strategy.reduce_boolean_decision(not stop)
