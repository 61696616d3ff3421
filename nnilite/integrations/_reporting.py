"""What all callbacks do: report a number, ask whether the trainer should stop, and report the result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import nnilite
from nnilite.tuning.class_args import one_of

Final = Literal["last", "max", "min"]
Report = Callable[[Any], Any]


class Progress:
    """The reports of one training.

    Args: see the package.

    Raises: ConfigError if `final` is another word
    """

    def __init__(self, trainer: str, metric: str, final: Final, report: Report | None) -> None:
        one_of("final", final, ("last", "max", "min"))
        self._trainer, self._metric, self._final, self._report = trainer, metric, final, report
        self._result: float | None = None
        self._over = False
        nnilite.should_stop()  # the signal may come before the first report

    def report(self, values: Mapping[str, Any]) -> bool:
        """Report the metric among the values. Return whether the trainer should stop.

        Raises: ValueError if it is not among them; what the function `report` raises
        """
        if nnilite.should_stop():
            return True
        if self._metric not in values:
            known = ", ".join(sorted(values)) or "nothing: give it data to evaluate"
            raise ValueError(f"{self._trainer} has no metric {self._metric!r}. It evaluates {known}")
        number = float(values[self._metric])
        choose, before = {"max": max, "min": min}.get(self._final), self._result
        # Nothing is greater or smaller than NaN, which a first epoch may have.
        self._result = number if choose is None or before is None or math.isnan(before) else choose(before, number)
        (self._report or nnilite.report_intermediate_result)(number)
        return nnilite.should_stop()

    def finish(self) -> None:
        """Report the final result, once, if the training was not cut short and `report` was not given."""
        if self._report is not None or self._over or nnilite.should_stop():
            return
        self._over = True
        if self._result is None:
            warnings.warn(f"{self._trainer} has evaluated nothing, so there is no result", RuntimeWarning, stacklevel=3)
        else:
            nnilite.report_final_result(self._result)
