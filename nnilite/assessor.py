"""The base class of assessors: NNI's, method by method."""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

__all__ = ["AssessResult", "Assessor"]


class AssessResult(Enum):
    """What an assessor thinks of a running trial."""

    Good = True
    Bad = False


class Assessor:
    """Stops poor trials early.

    A subclass implements `assess_trial`. It is called after each intermediate result, in order. Calls come from one
    thread; an exception ends the experiment with the traceback.

        class StopBelowHalf(Assessor):
            def assess_trial(self, trial_job_id, trial_history):
                return AssessResult.Bad if trial_history[-1] < 0.5 else AssessResult.Good
    """

    def assess_trial(self, trial_job_id: str, trial_history: list[Any]) -> AssessResult | bool:
        """Judge a running trial by all its intermediate results so far, oldest first, as reported.

        A history that is not longer than the one before is that of a trial that has begun again. An installed assessor
        must not change the list, and should look only at what is new: a trial may report many thousands of results.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement assess_trial")

    def explain_stop(self) -> str:
        """Return why the trial that was judged last should stop, for people; "" says nothing."""
        return ""

    def trial_end(self, trial_job_id: str, success: bool) -> None:
        """Note that a trial with at least one intermediate result has ended; `success`: as SUCCEEDED."""

    def load_checkpoint(self) -> None:
        """Load a checkpoint; called where overridden, before a resumed experiment's recorded history is shown again."""

    def save_checkpoint(self) -> None:
        """Save a checkpoint; called where it is overridden, when the assessor's process ends in good order."""

    def get_checkpoint_path(self) -> str | None:
        """Return a folder of the experiment where an assessor may keep files, or None."""
        path = os.environ.get("NNI_CHECKPOINT_DIRECTORY")
        return path if path and os.path.isdir(path) else None  # noqa: PTH112  pathlib is dear to import

    def _on_exit(self) -> None:
        """React to the end of the experiment."""

    def _on_error(self) -> None:
        """React to the end of the assessor's process because of an error."""
