"""XGBoost."""

from __future__ import annotations

from typing import Any

from xgboost.callback import TrainingCallback

from nnilite.integrations._reporting import Final, Progress, Report


class XGBoostCallback(TrainingCallback):
    """Reports a metric after each round of `xgboost.train`, `xgboost.cv` or an estimator of xgboost.

    The metric is named `<data>-<metric>` as in XGBoost's log, for example "valid-logloss", "validation_0-auc" with an
    estimator and "test-rmse" with `cv`. The trained model is what it is when `nnilite.should_stop()` ends the training.
    """

    def __init__(self, metric: str, *, final: Final = "last", report: Report | None = None) -> None:
        super().__init__()
        self._progress = Progress("XGBoost", metric, final, report)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Report; True stops the training."""
        values = {
            f"{data}-{metric}": history[-1][0] if isinstance(history[-1], tuple) else history[-1]  # cv: mean, deviation
            for data, metrics in evals_log.items()
            for metric, history in metrics.items()
        }
        return self._progress.report(values)

    def after_training(self, model: Any) -> Any:
        """Report the final result."""
        self._progress.finish()
        return model
