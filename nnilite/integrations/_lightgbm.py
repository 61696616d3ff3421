"""LightGBM."""

from __future__ import annotations

from typing import Any

from lightgbm.callback import EarlyStopException

from nnilite.integrations._reporting import Final, Progress, Report


class LightGBMCallback:
    """Reports a metric after each round of `lightgbm.train`, `lightgbm.cv` or an estimator of lightgbm.

    The metric is named `<data> <metric>`, for example "valid_0 l2", and "valid l2" with `cv`. The final result is
    reported after the last round. Where another callback may stop the training, call `finish()` after it.
    """

    order = 25  # after the log of LightGBM, before its own early stopping
    before_iteration = False

    def __init__(self, metric: str, *, final: Final = "last", report: Report | None = None) -> None:
        self._progress = Progress("LightGBM", metric, final, report)

    def __call__(self, env: Any) -> None:
        """Report, and stop the training by LightGBM's own exception for it."""
        evaluated = env.evaluation_result_list or []
        if self._progress.report({_make_name(result): result[2] for result in evaluated}):
            raise EarlyStopException(env.iteration, evaluated)
        if env.iteration == env.end_iteration - 1:
            self.finish()

    def finish(self) -> None:
        """Report the final result, if it has not been reported yet."""
        self._progress.finish()


def _make_name(result: Any) -> str:
    data, metric = result[0], result[1]
    return str(metric) if data == "cv_agg" else f"{data} {metric}"
