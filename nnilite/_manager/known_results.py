"""Fits results of other experiments to this one's search space, which may have changed since.

People add a parameter and want to keep what they know. A parameter that a result does not have gets its default, which
is the value that the program had so far. Without one it gets a random value of its domain, another one for each set of
parameters: no tuner then sees a connection between it and the results. One that the space no longer has is dropped. A
result is left out if a value lies outside of the space, or if it has no parameter of the space.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nnilite.errors import SpaceError
from nnilite.records import Json
from nnilite.space import Key, Parameter, SearchSpace
from nnilite.tuner import EXTRAS
from nnilite.tuning.learning import canonical, derived_seed

_NAMED = 5  # names or reasons listed in a sentence


@dataclass
class FittedResults:
    """What became of the results.

    taken    those from which the tuner learns, as `{"parameter": ..., "value": ...}`
    total    how many there were
    changed  how many of those taken had other parameters
    added    how many of those taken did not have each parameter and got a random value, by its name
    filled   likewise those that got the parameter's default
    dropped  likewise those that the space does not have
    left_out how many were left out, by the first parameter that does not fit
    examples a sentence on the first of these
    """

    taken: list[Json] = field(default_factory=list)
    total: int = 0
    changed: int = 0
    added: Counter[str] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    @property
    def is_as_it_was(self) -> bool:
        """Whether all results are used, and none is changed."""
        return len(self.taken) == self.total and not self.changed

    @property
    def sentence(self) -> str:
        """The counts and reasons in words."""
        parts = [f"{len(self.taken) or 'none'} of {self.total} results {'is' if len(self.taken) < 2 else 'are'} taken"]
        if self.changed:
            parts.append(f"{self.changed} of them changed ({'; '.join(self._changes())})")
        if self.left_out:
            parts.append(f"{self.left_out.total()} left out ({'; '.join(self._reasons())})")
        return ", ".join(parts)

    def _changes(self) -> Iterable[str]:
        if self.filled:
            yield f"the default of {_names(self.filled)}, which they do not have"
        if self.added:
            yield f"random values for {_names(self.added)}, which they do not have"
        if self.dropped:
            yield f"without {_names(self.dropped)}, which the search space does not have"

    def _reasons(self) -> Iterable[str]:
        for name, count in self.left_out.most_common(_NAMED):
            yield f"{count} since {self.examples[name]}"


def fit(results: Sequence[Json], space: Json) -> FittedResults:
    """Fit results to a search space. Where a tuner of the user's own has a space of another kind, all stay."""
    fitted = FittedResults(total=len(results))
    try:
        known = SearchSpace.parse(space)
    except SpaceError:
        fitted.taken = list(results)
        return fitted
    for result in results:
        _fit_result(result, known, fitted)
    return fitted


def _fit_result(result: Json, space: SearchSpace, fitted: FittedResults) -> None:
    if not _has_number(result.get("value")):
        fitted.left_out["value"] += 1
        fitted.examples.setdefault("value", f"the value is not a number: {result.get('value')!r:.60}")
        return
    fitting = _Fitting(space)
    try:
        parameters = fitting.fit(result["parameter"])
    except SpaceError as error:
        name = error.message.split(":")[0]
        fitted.left_out[name] += 1
        fitted.examples.setdefault(name, error.message)
        return
    if fitting.added or fitting.filled or fitting.dropped:
        result = {**result, "parameter": parameters}
        fitted.changed += 1
        fitted.added.update(fitting.added)
        fitted.filled.update(fitting.filled)
        fitted.dropped.update(fitting.dropped)
    fitted.taken.append(result)


class _Fitting:
    """One set of parameters, and how it differs from the space."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self.added: list[str] = []
        self.filled: list[str] = []
        self.dropped: list[str] = []

    def fit(self, parameters: Json) -> Json:
        """Return the parameters as the space has them.

        Raises: SpaceError if a value lies outside of it, or if it has none of the parameters.
        """
        top = self._space.children()
        given: dict[Key, int | float] = {}
        self._read(parameters, top, (), given)
        if top and not given:
            raise SpaceError("they have no parameter of the search space")
        # The same parameters get the same values, so that results which are imported twice are known again.
        rng = random.Random(derived_seed(*canonical(parameters).encode()))
        drawn = {one.path: one.sample(rng) if one.default is None else one.default for one in self._space.parameters}
        extras = EXTRAS - {one.name for one in top}
        kept = {name: value for name, value in parameters.items() if name in extras}
        return {**self._space.build({**drawn, **given}), **kept}

    def _read(self, given: Json, expected: Sequence[Parameter], prefix: Key, raws: dict[Key, int | float]) -> None:
        if not isinstance(given, Mapping):
            raise SpaceError(f"{_join_dotted(prefix) or 'the parameters'}: {given!r:.100} is not an object")
        names = {one.name for one in expected}
        aside: Collection[str] = {"_name"} if prefix else EXTRAS
        self.dropped += [
            _join_dotted((*prefix, str(name))) for name in given if name not in names and name not in aside
        ]
        for one in expected:
            if one.name not in given:
                (self.added if one.default is None else self.filled).append(_join_dotted(one.path))
                continue
            raw = raws[one.path] = one.raw(given[one.name])
            if one.nested:
                self._read(given[one.name], self._space.children(one.path, int(raw)), (*one.path, int(raw)), raws)


def _has_number(value: Json) -> bool:
    """Return whether a result is a number, or has one for any objective. NaN is one: such parameters are bad."""
    values = value.values() if isinstance(value, Mapping) else [value]
    return any(isinstance(one, (int, float)) for one in values)


def _names(counts: Counter[str]) -> str:
    named = ", ".join(name for name, _ in counts.most_common(_NAMED))
    return named if len(counts) <= _NAMED else f"{named} and {len(counts) - _NAMED} more"


def _join_dotted(path: Key) -> str:
    """Return a path for people: the names without the options."""
    return ".".join(str(part) for part in path[::2])
