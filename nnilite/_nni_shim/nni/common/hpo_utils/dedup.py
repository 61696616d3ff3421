"""`nni.common.hpo_utils.dedup`: parameters that were tried before become others."""

from __future__ import annotations

import json
import logging

from .formatting import deformat_parameters, format_parameters

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .formatting import FormattedParameters, FormattedSearchSpace, ParameterSpec

__all__ = ["Deduplicator"]

log = logging.getLogger(__name__)


class Deduplicator:
    """Gives parameters back as they are, or others if they were given before: the next ones of a grid search.

        self.space = format_search_space(search_space)
        self.dedup = Deduplicator(self.space)
        ...
        return deformat_parameters(self.dedup(formatted), self.space)

    Two sets of parameters are equal if a trial cannot distinguish them. Where a parameter at the top of the space is
    continuous, nothing counts as tried before.
    """

    def __init__(self, formatted_search_space: FormattedSearchSpace) -> None:
        self._space = formatted_search_space
        top = [spec for spec in formatted_search_space.values() if not spec.is_nested()]
        self._endless = any(_is_continuous(spec) for spec in top)
        self._search_space = {spec.name: {"_type": spec.type, "_value": spec.values} for spec in top}
        self._known: set[str] = set()
        self._grid: Any = None

    def __call__(self, formatted_parameters: FormattedParameters) -> FormattedParameters:
        """Return these parameters, or others if they were tried before.

        Raises: nni.NoMoreTrialError if the whole space was tried; ValueError for parameters outside it.
        """
        if self._endless or self._is_new(formatted_parameters):
            return formatted_parameters
        if self._grid is None:
            log.info("a grid search finds other parameters in place of those that were tried before")
            self._grid = _grid(self._search_space)
        while True:
            found = format_parameters(self._grid.generate_parameters(0), self._space)
            if self._is_new(found):
                return found

    def add_history(self, formatted_parameters: FormattedParameters) -> None:
        """Note that these parameters have been tried."""
        if not self._endless:
            self._is_new(formatted_parameters)

    def _is_new(self, formatted_parameters: FormattedParameters) -> bool:
        plain = deformat_parameters(formatted_parameters, self._space)
        text = json.dumps(plain, sort_keys=True, default=str)
        new = text not in self._known
        self._known.add(text)
        return new


def _is_continuous(spec: ParameterSpec) -> bool:
    if spec.categorical or spec.q is not None:
        return False
    if spec.sigma is not None:
        return spec.sigma > 0
    return spec.low is None or spec.high is None or spec.low < spec.high


def _grid(search_space: Any) -> Any:
    from ...algorithms.hpo.gridsearch_tuner import GridSearchTuner  # type: ignore[import-not-found]

    grid = GridSearchTuner()
    grid.update_search_space(search_space)
    return grid
