"""CatBoost."""

from __future__ import annotations

from typing import Any

import catboost  # noqa: F401  a missing package is told when the class is first used

from nnilite.integrations._reporting import Final, Progress, Report


class CatBoostCallback:
    """Reports a metric after each iteration of the `fit` of an estimator of catboost.

    The metric is named `<data>-<metric>`, for example "validation-Logloss", and "validation_0-AUC" with several sets.
    Call `finish()` after `fit`: CatBoost does not say that a training is over, and turns each exception of a callback
    into one of its own. So what ends the trial stops the training, and is raised by `finish()`.
    """

    def __init__(self, metric: str, *, final: Final = "last", report: Report | None = None) -> None:
        self._progress = Progress("CatBoost", metric, final, report)
        self._error: BaseException | None = None

    def after_iteration(self, info: Any) -> bool:
        """Report; False stops the training."""
        values = {
            f"{data}-{metric}": history[-1]
            for data, metrics in info.metrics.items()
            for metric, history in metrics.items()
            if history
        }
        try:
            return not self._progress.report(values)
        except BaseException as error:  # noqa: BLE001  whatever it is, CatBoost would keep its text alone
            self._error = error
            return False

    def finish(self) -> None:
        """Report the final result, if the training was not cut short. Raises: what has ended the training."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        self._progress.finish()
