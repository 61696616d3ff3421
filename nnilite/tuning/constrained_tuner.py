"""Makes every tuner obey constraints between parameters, and rank what breaks result constraints below the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnilite.errors import ConfigError, NoMoreTrialError, Place
from nnilite.space import Constraints, SearchSpace
from nnilite.tuner import Tuner
from nnilite.tuning.learning import LearningTuner
from nnilite.tuning.result_constraints import ResultConstraints

__all__ = ["ConstrainedTuner", "constrain"]

_MOST_REFUSED = 1000  # proposals in a row


def constrain(tuner: Tuner, constraints: Sequence[str], result_constraints: Sequence[str] = ()) -> Tuner:
    """Return the tuner, or one around it, that proposes only what satisfies the constraints. It has no space yet.

    A result that breaks one of `result_constraints` ranks below all that do not. A `LearningTuner` sees it;
    for other tuners the trial has failed.

    Raises: ConfigError for an advisor, whose trials come unasked
    """
    if not (constraints or result_constraints):
        return tuner
    if isinstance(tuner, LearningTuner):
        tuner.constraints, tuner.result_constraints = tuple(constraints), tuple(result_constraints)
        return tuner
    if hasattr(tuner, "hear_intermediate"):
        field = "constraints" if constraints else "resultConstraints"
        raise ConfigError("an advisor cannot obey them; name another tuner", Place(field=field))
    return ConstrainedTuner(tuner, constraints, result_constraints)


class ConstrainedTuner(Tuner):
    """Asks another tuner again while its proposals violate a constraint. It sees a refused one as a failed trial.

    It sees results that break a result constraint as failed trials, too.
    """

    def __init__(self, tuner: Tuner, constraints: Sequence[str], result_constraints: Sequence[str] = ()) -> None:
        self._tuner, self._texts = tuner, tuple(constraints)
        self._limits = ResultConstraints.parse(result_constraints)
        self._withheld: set[int | None] = set()  # ids of trials whose results the tuner does not see
        self._customized = tuner._customized

    def update_search_space(self, search_space: Any) -> None:
        space = SearchSpace.parse(search_space)
        rules = Constraints.parse(self._texts, space)
        rules.check(space)
        self._tuner.update_search_space(search_space)
        self._rules = rules

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        for _ in range(_MOST_REFUSED):
            found = self._tuner.generate_multiple_parameters([parameter_id], **kwargs)
            if not found:
                raise NoMoreTrialError
            if not isinstance(found[0], dict) or self._rules.violated(found[0]) is None:
                return found[0]
            self._tuner.trial_end(parameter_id, False)
        raise ConfigError(
            f"the tuner has proposed {_MOST_REFUSED:,} sets of parameters in a row that violate one of them; "
            "loosen them, or narrow the search space",
            Place(field="constraints"),
        )

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **kwargs: Any) -> None:
        if self._limits.violated(value):
            self._withheld.add(parameter_id)
        else:
            self._tuner.receive_trial_result(parameter_id, parameters, value, **kwargs)

    def trial_end(self, parameter_id: int | None, success: bool, **kwargs: Any) -> None:
        withheld = parameter_id in self._withheld
        self._withheld.discard(parameter_id)
        self._tuner.trial_end(parameter_id, success and not withheld, **kwargs)

    def import_data(self, data: list[dict[str, Any]]) -> None:
        self._tuner.import_data([item for item in data if not self._limits.violated(item.get("value"))])

    def load_checkpoint(self) -> None:
        self._tuner.load_checkpoint()

    def save_checkpoint(self) -> None:
        self._tuner.save_checkpoint()

    def _on_exit(self) -> None:
        self._tuner._on_exit()
