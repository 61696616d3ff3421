"""The bookkeeping of tuners that learn from points and their values.

A `LearningTuner` owns the list of points: proposed, customised and imported ones, running or ended. A subclass owns
its model and implements `_suggest`, which gets a generator of random numbers that depends on the seed and the
parameter id alone. With that, and with `_opened` and `_closed` as the model's only source, the same seed and the
same order of calls give the same proposals, also after a replay, which takes recorded parameters as they are.
Late, doubled and unknown ids do no harm.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from nnilite.errors import NoMoreTrialError, SpaceError
from nnilite.space import Constraints, Flat, Parameter, SearchSpace
from nnilite.tuner import EXTRAS, Call, Tuner, scalar
from nnilite.tuning.class_args import one_of, whole_number
from nnilite.tuning.prior import Prior, falling_share
from nnilite.tuning.result_constraints import ResultConstraints, violation

if TYPE_CHECKING:
    from nnilite.records import Json

__all__ = ["Flat", "LearningTuner", "Point", "PointState", "canonical", "derived_seed", "grid"]

log = logging.getLogger(__name__)

_MODEL_TRIES = 6
_CONSTRAINED_TRIES = 20
_RANDOM_TRIES = 50
_MOST_EMPTY = 10  # tries that find nothing, before the search gives up
_PRIOR_ATTEMPT = -1


class PointState(Enum):
    """What is known of a point."""

    RUNNING = "running"
    DONE = "done"  # it has a value; if it was stopped early, that of its last intermediate result
    POOR = "poor"  # its result is not a finite number, or not feasible: worse than those that are done
    FAILED = "failed"  # it ended without a result; that says nothing about the parameters


@dataclass
class Point:
    """One set of parameters that a tuner knows.

    parameters   as the trial gets them
    flat         the same, flattened; None if they do not fit the present search space
    parameter_id the tuner's number; None for customised and imported ones
    losses       one for each objective, less is better whatever the optimize mode; None if it is not DONE
    value        the result as reported
    margins      how far the result is beyond each result constraint; 0 or less: within it
    """

    parameters: Json
    flat: Flat | None
    parameter_id: int | None = None
    state: PointState = PointState.RUNNING
    losses: tuple[float, ...] | None = None
    value: Json = None
    margins: tuple[float, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)  # private to the subclass's model

    @property
    def loss(self) -> float | None:
        """The first (mostly, the only) loss."""
        return self.losses[0] if self.losses else None

    @property
    def violation(self) -> float:
        """How much the result breaks result constraints; 0: it is feasible."""
        return violation(self.margins)


class LearningTuner(Tuner):
    """Base of tuners that learn from points. A subclass implements `_suggest` and whichever other hook it needs.

    Args:
        optimize_mode: "maximize" or "minimize".
        seed: any whole number; None for a different search each time.

    Raises: ConfigError

        class Luck(LearningTuner):
            def _suggest(self, parameter_id, rng): return self.space.sample(rng)
    """

    distinct = True
    """Whether no point is proposed twice where the space is finite. Then an exhausted space ends the search."""

    learns = True
    """Whether results change proposals. If not, points of a space without end are not kept: no proposal needs them."""

    scores_prior = False
    """Whether scores of proposals have the prior of the defaults, so that none need be drawn around them."""

    extra_keys: frozenset[str] = frozenset()
    """Keys that the tuner adds to the parameters of the space."""

    constraints: tuple[str, ...] = ()
    """Expressions over the parameters that each proposal satisfies: see `nnilite.space.Constraints`."""

    result_constraints: tuple[str, ...] = ()
    """Limits of the numbers in results: see `nnilite.tuning.result_constraints`."""

    weighs_violations = False
    """Whether the tuner ranks points by their `violation` itself. For others what breaks a constraint is POOR."""

    space: SearchSpace
    _limits = ResultConstraints.parse(())
    _rules: Constraints | None = None
    _prior: Prior | None = None
    _keeps_points = True

    def __init__(self, optimize_mode: str = "minimize", seed: int | None = None) -> None:
        self._accept_customized_trials()
        self.sign = -1.0 if one_of("optimize_mode", optimize_mode, ("maximize", "minimize")) == "maximize" else 1.0
        self.seed = secrets.randbits(32) if seed is None else whole_number("seed", seed)
        self.points: list[Point] = []
        self._space: SearchSpace | None = None
        self._running: dict[int, Point] = {}
        self._heard: set[int] = set()  # ids whose result has arrived
        self._seen: set[str] = set()  # canonical parameters, where the space is finite

    # What a subclass implements

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        """Propose parameters. Called again, with another rng, if the proposal was seen before.

        Raises: NoMoreTrialError
        """
        raise NotImplementedError

    def _accept(self, space: SearchSpace) -> None:
        """Raise SpaceError for a space that this tuner cannot search."""

    def _restart(self) -> None:
        """Forget the model, as `self.space` is new: all points that fit follow through `_opened` and `_closed`."""

    def _opened(self, point: Point) -> None:
        """Note that this point runs now; it need not be one that `_suggest` proposed."""

    def _closed(self, point: Point) -> None:
        """Note that this point has ended, as its state says."""

    def _losses(self, value: Json) -> tuple[float, ...] | None:
        """Return what the tuner minimises, or None if the value holds no finite number."""
        number = scalar(value)
        return None if number is None else (self.sign * number,)

    def serve(self, owner: LearningTuner) -> None:
        """Become the model of another tuner, which owns the points and calls the hooks. Raises: SpaceError."""
        self._accept(owner.space)
        self.space = self._space = owner.space
        self._rules, self._prior, self._limits = owner._rules, owner._prior, owner._limits
        self.points, self._running, self._seen = owner.points, owner._running, owner._seen
        self._restart()

    # What the manager calls

    def update_search_space(self, search_space: Any) -> None:
        space = SearchSpace.parse(search_space)
        names = {parameter.name for parameter in space.children()}
        for name in sorted(names & self.extra_keys):
            raise SpaceError(f"{name!r} is what this tuner adds to the parameters itself; choose another name")
        rules = Constraints.parse(self.constraints, space) if self.constraints else None
        if rules is not None:
            rules.check(space)
        self._limits = ResultConstraints.parse(self.result_constraints)
        self._accept(space)
        self.space, self._space, self._rules, self._prior = space, space, rules, Prior.of(space)
        self._keeps_points = self.learns or space.size is not None
        self._extras = (EXTRAS | self.extra_keys) - names
        self._seen.clear()
        self._restart()
        for point in self.points:
            point.flat = self._flatten_value(point.parameters)
            point.notes.clear()
            self._introduce(point)

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        if self._space is None:
            raise SpaceError("a tuner needs a search space before it can propose anything")
        parameters = self._suggest(parameter_id, self.rng(parameter_id))
        if self._prior is not None:
            share = falling_share(len(self.points)) if self.learns and self.distinct and not self.scores_prior else 0.0
            rng = self.rng(parameter_id, _PRIOR_ATTEMPT)
            leaning = self._prior.replace(self._flatten_value(parameters) or {}, parameter_id, share, rng)
            if leaning is not None:
                parameters = {**self.space.build(leaning), **_pick(parameters, self._extras)}
        if self._rules is not None or (self.distinct and self.space.size is not None):
            parameters = self._acceptable(parameters, parameter_id)
        self._open(parameters, parameter_id)
        return parameters

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **kwargs: Any) -> None:
        if not self._keeps_points:
            return
        if parameter_id is not None:
            if parameter_id in self._heard:
                log.debug("parameter id %s: a second result is ignored", parameter_id)
                return
            self._heard.add(parameter_id)
        point = self._running.pop(parameter_id, None) if parameter_id is not None else None
        if point is not None:
            self._close(point, value)
        else:
            self._learn(parameters, value, parameter_id)

    def trial_end(self, parameter_id: int | None, success: bool, **kwargs: Any) -> None:
        point = self._running.pop(parameter_id, None) if parameter_id is not None else None
        if point is not None:
            point.state = PointState.FAILED
            self._pass_closed(point)

    def import_data(self, data: list[dict[str, Any]]) -> None:
        before = len(self.points)
        for item in data:
            if item.get("value") is not None:
                self._learn(item.get("parameter"), item["value"], None)
        log.info("imported %d of %d points; others are outside the space", len(self.points) - before, len(data))

    def replay(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if call.kind == "generate" and call.parameter_id is not None:
                if call.parameters is not None:
                    self._open(call.parameters, call.parameter_id)
            else:
                self.apply(call)

    # Random numbers and repetition

    def rng(self, parameter_id: int, attempt: int = 0) -> random.Random:
        """Return random numbers that depend on nothing but the seed and these two."""
        return random.Random(derived_seed(self.seed, parameter_id, attempt))

    def _acceptable(self, parameters: Json, parameter_id: int) -> Json:
        """Return these parameters or, if they were tried already or violate a constraint, others.

        Those come from the model, by chance, or by enumeration. Raises: NoMoreTrialError, SpaceError
        """
        space, rules, size = self.space, self._rules, self.space.size if self.distinct else None
        if size is not None and len(self._seen) >= size:
            raise NoMoreTrialError

        def fit(parameters: Json) -> bool:
            new = size is None or canonical(parameters) not in self._seen
            return new and (rules is None or rules.violated(parameters) is None)

        model_tries = _MODEL_TRIES if rules is None else _CONSTRAINED_TRIES
        for attempt in range(1, model_tries):
            if fit(parameters):
                return parameters
            parameters = self._suggest(parameter_id, self.rng(parameter_id, attempt))
        extras = _pick(parameters, self._extras)
        attempts = range(model_tries, model_tries + _RANDOM_TRIES)
        drawn = _draw(space, rules, (self.rng(parameter_id, attempt) for attempt in attempts), size is not None)
        by_chance = ({**sample, **extras} for sample in drawn)
        every = map(space.build, grid(space, Parameter.points)) if size is not None else ()
        for found in itertools.chain([parameters], by_chance, every):
            if fit(found):
                return found
        raise NoMoreTrialError

    # Points

    def _open(self, parameters: Json, parameter_id: int) -> None:
        if not self._keeps_points:
            return
        point = Point(parameters, self._flatten_value(parameters), parameter_id)
        self.points.append(point)
        self._running[parameter_id] = point
        self._introduce(point)

    def _learn(self, parameters: Json, value: Json, parameter_id: int | None) -> None:
        """Learn a result of parameters that are not running: customised, imported, late or from elsewhere."""
        flat = self._flatten_value(parameters)
        if flat is None:
            log.info("a result for parameters outside of the search space is left out: %.200r", parameters)
            return
        point = Point(parameters, flat, parameter_id)
        self.points.append(point)
        self._introduce(point)
        self._close(point, value)

    def _introduce(self, point: Point) -> None:
        if point.flat is None:
            return
        if self.space.size is not None:
            self._seen.add(canonical(point.parameters))
        self._opened(point)
        if point.state is not PointState.RUNNING:
            self._closed(point)

    def _close(self, point: Point, value: Json) -> None:
        point.value, point.losses, point.margins = value, self._losses(value), self._limits.margins(value)
        if point.violation and not self.weighs_violations:
            point.losses = None
        point.state = PointState.POOR if point.losses is None else PointState.DONE
        self._pass_closed(point)

    def _pass_closed(self, point: Point) -> None:
        if point.flat is not None:
            self._closed(point)

    def _flatten_value(self, parameters: Json) -> Flat | None:
        if self._space is None:
            return None
        if isinstance(parameters, Mapping):
            parameters = {key: value for key, value in parameters.items() if key not in self._extras}
        try:
            return dict(self.space.flatten(parameters))
        except SpaceError:
            return None


def _pick(parameters: Json, names: AbstractSet[str]) -> dict[str, Json]:
    """Return the parameters with these names, as far as they exist."""
    return {name: value for name, value in parameters.items() if name in names}


def derived_seed(*parts: int) -> int:
    """Return a well-mixed seed of 32 bits from whole numbers."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


def canonical(parameters: Json) -> str:
    """Return a text that is equal for equal parameters, whatever the order of their keys."""
    return json.dumps(parameters, sort_keys=True, default=repr)


def grid(space: SearchSpace, values_of: Callable[[Parameter], Iterable[int | float]]) -> Iterator[Flat]:
    """Yield all combinations of the raw values that `values_of` gives for each parameter.

    The last one changes fastest.
    """
    return _grid(space, space.children(), values_of)


def _draw(
    space: SearchSpace, rules: Constraints | None, generators: Iterable[random.Random], is_finite: bool
) -> Iterator[dict[str, Any]]:
    """Yield random parameters that satisfy the constraints. Raises: SpaceError if chance finds too few.

    `is_finite`: whether all of the space can be enumerated instead.
    """
    empty = 0
    for rng in generators:
        try:
            sample = space.sample(rng) if rules is None else rules.sample(space, rng)
        except SpaceError:  # where few points satisfy the constraints, the next try may find one
            empty += 1
            if empty < _MOST_EMPTY:
                continue
            if is_finite:
                return
            raise
        yield sample


def _grid(
    space: SearchSpace, waiting: Sequence[Parameter], values_of: Callable[[Parameter], Iterable[int | float]]
) -> Iterator[Flat]:
    if not waiting:
        yield {}
        return
    first, rest = waiting[0], tuple(waiting[1:])
    for raw in values_of(first):
        below = space.children(first.path, int(raw)) if first.nested else ()
        for flat in _grid(space, (*below, *rest), values_of):
            yield {first.path: raw, **flat}
