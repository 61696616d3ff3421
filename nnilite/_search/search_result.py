"""What a search has found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nnilite.errors import PluginError, no_attribute

if TYPE_CHECKING:
    from optuna.study import Study
    from pandas import DataFrame

    from nnilite.records import Json, Trial


@dataclass(frozen=True)
class SearchResult:
    """What a search has found.

    best             the succeeded trial with the best value that breaks no result constraint; None if there is none
    trials           all trials, in the order in which they started
    intermediate     trial id -> the values that it reported on its way
    front            the trials that no other one beats in every objective; of a search with one objective, the best
    space            the search space
    objectives       what was searched for: "maximize" or "minimize", by the name of the number
    """

    best: Trial | None
    trials: tuple[Trial, ...]
    intermediate: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    front: tuple[Trial, ...] = ()
    space: Mapping[str, Any] = field(default_factory=dict)
    objectives: Mapping[str, str] = field(default_factory=lambda: {"default": "maximize"})

    def __repr__(self) -> str:
        best = self.reason if self.best is None else f"best {self.best.value!r} (trial {self.best.id})"
        return f"<SearchResult: {len(self.trials)} trials, {best}>"

    def __len__(self) -> int:
        return len(self.trials)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def __bool__(self) -> bool:
        return True  # a result without trials is one, too

    def __getitem__(self, index: int) -> Trial:
        return self.trials[index]

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            """Say what is here for a name of another library. Raises: AttributeError."""
            from nnilite._search import argument_synonyms

            raise no_attribute("'SearchResult' object", self, name, argument_synonyms.OF_RESULTS)

    @property
    def reason(self) -> str:
        """Why there is no best trial; "" if there is one."""
        if self.best is not None:
            return ""
        counts = Counter(trial.state.value for trial in self.trials)
        if not counts:
            return "no trial has begun"
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        broken = [trial for trial in self.trials if trial.violates]
        if broken:
            return f"none is feasible: {states}; trial {broken[-1].id} breaks {broken[-1].violates}"
        explained = [trial for trial in self.trials if trial.reason]
        return f"none with a result: {states}" + (
            f"; trial {explained[-1].id}: {explained[-1].reason}" if explained else ""
        )

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        from nnilite._notebook import html

        return html.result(self.trials, self.front)

    def to_optuna(self) -> Study:
        """Return a study of optuna with all trials, for `optuna.visualization`, optuna's analyses or further search."""
        from nnilite.plot import optuna_study

        ran = [optuna_study.PlottedTrial(trial, self.intermediate.get(trial.id, ())) for trial in self.trials]
        return optuna_study.study_of("search", self.space, self.objectives, ran)

    def to_dataframe(self) -> DataFrame:
        """Return one row per trial: sequence, state, value, duration_s, reason, violates, `parameters.NAME` and so on.

        Raises: PluginError if pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise PluginError("to_dataframe needs pandas. Install it with: pip install 'nnilite[pandas]'") from error
        return pandas.DataFrame([_row(trial) for trial in self.trials])


def _row(trial: Trial) -> dict[str, Any]:
    from nnilite.records.dotted import flatten

    duration = None if trial.ended is None or trial.started is None else trial.ended - trial.started
    row = {
        "sequence": trial.sequence,
        "state": trial.state.value,
        "value": trial.value,
        "duration_s": duration,
        "reason": trial.reason,
        "violates": trial.violates,
    }
    attributes = {f"attributes.{name}": value for name, value in trial.attributes.items()}
    return row | dict(flatten(trial.parameters, "parameters")) | attributes
