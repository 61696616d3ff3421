"""Hugging Face transformers."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

import nnilite
from nnilite.integrations._reporting import Final, Progress, Report


class TransformersCallback(TrainerCallback):
    """Reports a metric of each evaluation of a `transformers.Trainer`, for example "eval_loss".

    When `nnilite.should_stop()`, the Trainer saves a checkpoint after the step, and ends the training: in all of its
    processes after the same step.
    """

    def __init__(self, metric: str, *, final: Final = "last", report: Report | None = None) -> None:
        self._progress = Progress("The Trainer", metric, final, report)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the training between evaluations, too."""
        if _agree_to_stop(args, nnilite.should_stop()):
            control.should_save = control.should_training_stop = True

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        """Report from the first of the processes."""
        stop = state.is_world_process_zero and self._progress.report(metrics or {})
        if _agree_to_stop(args, stop):
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the final result."""
        if state.is_world_process_zero:
            self._progress.finish()


def _agree_to_stop(args: Any, stop: bool) -> bool:
    """Return whether any process should stop, the same answer in all of them.

    The signal reaches each process between different steps. If one stops alone, the
    others wait without end in their next collective operation.
    """
    import torch.distributed

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return stop
    votes = torch.tensor(int(stop), device=args.device)
    torch.distributed.all_reduce(votes)
    return bool(votes.item())
