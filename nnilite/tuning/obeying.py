"""Makes every tuner obey constraints between parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnilite.errors import ConfigError, NoMoreTrialError, Place
from nnilite.space import Constraints, SearchSpace
from nnilite.tuner import Tuner
from nnilite.tuning.learning import LearningTuner

__all__ = ["ObeyingTuner", "obeying"]

_MOST_REFUSED = 1000  # proposals in a row


def obeying(tuner: Tuner, constraints: Sequence[str]) -> Tuner:
    """Return the tuner, or one around it, that proposes only what satisfies the constraints. It has no space yet.

    Raises: ConfigError for an advisor, whose trials come unasked
    """
    if not constraints:
        return tuner
    if isinstance(tuner, LearningTuner):
        tuner.constraints = tuple(constraints)
        return tuner
    if hasattr(tuner, "hear_intermediate"):
        raise ConfigError("an advisor cannot obey them; name another tuner", Place(field="constraints"))
    return ObeyingTuner(tuner, constraints)


class ObeyingTuner(Tuner):
    """Asks another tuner again while its proposals violate a constraint. It sees a refused one as a failed trial."""

    def __init__(self, tuner: Tuner, constraints: Sequence[str]) -> None:
        self._tuner, self._texts = tuner, tuple(constraints)
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
        self._tuner.receive_trial_result(parameter_id, parameters, value, **kwargs)

    def trial_end(self, parameter_id: int | None, success: bool, **kwargs: Any) -> None:
        self._tuner.trial_end(parameter_id, success, **kwargs)

    def import_data(self, data: list[dict[str, Any]]) -> None:
        self._tuner.import_data(data)

    def load_checkpoint(self) -> None:
        self._tuner.load_checkpoint()

    def save_checkpoint(self) -> None:
        self._tuner.save_checkpoint()

    def _on_exit(self) -> None:
        self._tuner._on_exit()
