"""A search with the interface of scikit-learn's `GridSearchCV`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection._search import BaseSearchCV  # made for subclasses: they override _run_search
from sklearn.utils import check_random_state

from nnilite.errors import Conflict, NoMoreTrialError
from nnilite.search import Search
from nnilite.tuner import Tuner

_MOST_FAILURES = 3  # as many in a row at the start are a fault of the program, not of the parameters


class NniliteSearchCV(BaseSearchCV):
    """Searches the parameters of an estimator by cross-validation, in this process.

    `fit`, `predict`, `score`, `best_estimator_`, `best_params_`, `best_score_`, `best_index_`, `cv_results_` and the
    other arguments are those of scikit-learn's `GridSearchCV`. `search_result_` is the `SearchResult`.

    Args:
        estimator: an estimator, or a pipeline.
        space: a search space over its parameters, flat: `{"svc__C": space.loguniform(0.01, 100)}`.
        trials: how many sets of parameters are tried.
        tuner: as in `Search`; each fit has a copy of a tuner of your own. None: Auto.
        concurrency: how many sets are proposed at once. With `n_jobs`, their folds are fitted side by side.
        random_state: the seed.
        refit: with several scores, the name of the one to search for.

    A set of parameters with which no fold can be fitted is a failed trial, and no row of `cv_results_`.

    Raises (in `fit`): SpaceError, ConfigError, PluginError; Conflict if `refit` does not name the score; the error of
    the fits if none succeeds
    """

    def __init__(  # noqa: PLR0913  as in scikit-learn
        self,
        estimator: Any,
        space: Mapping[str, Any],
        *,
        trials: int = 20,
        tuner: str | Tuner | None = None,
        concurrency: int = 1,
        random_state: Any = None,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool | str | Callable[..., int] = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        error_score: float | str = math.nan,
        return_train_score: bool = False,
    ) -> None:
        own = {"scoring": scoring, "n_jobs": n_jobs, "refit": refit, "cv": cv, "verbose": verbose}
        super().__init__(
            estimator, **own, pre_dispatch=pre_dispatch, error_score=error_score, return_train_score=return_train_score
        )
        self.space, self.trials, self.tuner = space, trials, tuner
        self.concurrency, self.random_state = concurrency, random_state

    def _run_search(self, evaluate_candidates: Callable[[list[Any]], Mapping[str, Any]]) -> None:
        if self.trials < 1 or self.concurrency < 1:
            raise Conflict(f"trials and concurrency must be at least 1, not {self.trials} and {self.concurrency}.")
        seed = None if self.random_state is None else int(check_random_state(self.random_state).randint(2**31 - 1))
        # Each fit begins anew. A tuner of one's own would go on with what it has learned of other data.
        search = Search(self.space, tuner=clone(self.tuner, safe=False), seed=seed)
        begun = succeeded = 0
        while begun < self.trials and (asked := _ask(search, min(self.concurrency, self.trials - begun))):
            begun += len(asked)
            try:
                scores = self._find_scores(evaluate_candidates([trial.parameters for trial in asked]))[-len(asked) :]
            except ValueError as error:  # what scikit-learn raises if no fold could be fitted
                if self.error_score == "raise" or (not succeeded and begun >= min(_MOST_FAILURES, self.trials)):
                    raise
                warnings.warn(f"no fit succeeded with {len(asked)} sets of parameters: {error}", FitFailedWarning, 2)
                scores = [math.nan] * len(asked)
            for trial, score in zip(asked, scores, strict=True):
                search.tell(trial, float(score))
                succeeded += math.isfinite(score)
        if not begun:
            raise Conflict("there is nothing to try: the tuner proposes no parameters for this space.")
        self.search_result_ = search.result()

    def _find_scores(self, results: Mapping[str, Any]) -> Any:
        name = f"mean_test_{self.refit if isinstance(self.refit, str) else 'score'}"
        if name not in results:
            raise Conflict("with several scores, refit must be the name of the one to search for.")
        return results[name]


def _ask(search: Search, count: int) -> list[Any]:
    """Begin up to `count` trials; fewer if the space is exhausted."""
    asked: list[Any] = []
    try:
        while len(asked) < count:
            asked.append(search.ask())
    except NoMoreTrialError:
        pass
    return asked
