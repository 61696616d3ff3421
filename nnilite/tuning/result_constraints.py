"""Constraints on results: limits of the numbers that trials report, such as `latency <= 20`.

What breaks one is not feasible: it ranks below everything that is, whatever its objective. Of those that break some,
less is better: a margin is the distance to the limit, as a share of the limit where that is a number other than 0.
A result without a number that a constraint needs breaks it, infinitely.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnilite.errors import ConfigError, Place, SpaceError
from nnilite.space import expressions
from nnilite.tuner import scalar

if TYPE_CHECKING:
    from nnilite.records import Json

__all__ = ["NOT_REPORTED", "ResultConstraints", "violation"]

NOT_REPORTED = "is not reported"
"""What the sentence on a result says of a number that a constraint needs and that the result does not have."""

_LIMITS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_PROBE = 1.5  # a number for which every expression of numbers can be computed, or is refused by arithmetic alone
_CURE = "write a limit such as 'latency <= 20' or '1 <= loss < 2', and each further one as an entry of its own"


@dataclass(frozen=True)
class _Limit:
    """One constraint: its text, the numbers that it names, and what must not be larger than what."""

    text: str
    names: tuple[str, ...]
    pairs: tuple[
        tuple[ast.expr, ast.expr, bool], ...
    ]  # the smaller side, the larger one, and whether they may be equal

    def margin(self, numbers: Mapping[str, float]) -> float:
        """Return how far numbers are beyond the limit; 0 or less within it, infinity if they do not tell."""
        try:
            return max(_pair_margin(*pair, numbers) for pair in self.pairs)
        except (expressions.Absent, ArithmeticError, ValueError):
            return math.inf

    def describe(self, numbers: Mapping[str, float]) -> str:
        found = [f"{name} {numbers[name]:g}" if name in numbers else f"{name} {NOT_REPORTED}" for name in self.names]
        return f"{self.text} ({', '.join(found)})"


@dataclass(frozen=True)
class ResultConstraints:
    """All constraints on the results of an experiment."""

    texts: tuple[str, ...]
    _limits: tuple[_Limit, ...]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> ResultConstraints:
        """Check expressions. Raises: ConfigError, which names the expression and its place."""
        if isinstance(texts, str):
            raise ConfigError(f"must be a list of texts: write [{texts!r}]", Place(field="resultConstraints"))
        found = []
        for number, text in enumerate(texts):
            try:
                found.append(_read(text))
            except SpaceError as error:
                raise ConfigError(error.message, Place(field=f"resultConstraints[{number}]")) from None
        return cls(tuple(texts), tuple(found))

    def __bool__(self) -> bool:
        return bool(self.texts)

    @property
    def names(self) -> tuple[str, ...]:
        """The numbers of results that the constraints need, each once."""
        return tuple(dict.fromkeys(name for limit in self._limits for name in limit.names))

    def margins(self, value: Json) -> tuple[float, ...]:
        """Return how far a result is beyond each limit; 0 or less within it, infinity if a number is missing."""
        numbers = self._numbers(value)
        return tuple(limit.margin(numbers) for limit in self._limits)

    def violated(self, value: Json) -> str:
        """Return the constraints that a result breaks, with its numbers; "" if it is feasible."""
        numbers = self._numbers(value)
        return "; ".join(limit.describe(numbers) for limit in self._limits if limit.margin(numbers) > 0.0)

    def _numbers(self, value: Json) -> dict[str, float]:
        by_name = value if isinstance(value, dict) else {"default": value}
        numbers = ((name, scalar(by_name, name)) for name in self.names)
        return {name: number for name, number in numbers if number is not None}


def violation(margins: Sequence[float]) -> float:
    """Return how much a result with these margins breaks in all; 0: it is feasible."""
    return float(sum(max(margin, 0.0) for margin in margins))


def _read(text: str) -> _Limit:
    """Return the constraint that a text describes. Raises: SpaceError."""
    if not isinstance(text, str):
        raise SpaceError(f"{text!r} is not a text; {_CURE}")
    tree = expressions.parse(text, None)
    if not isinstance(tree, ast.Compare) or not all(isinstance(op, _LIMITS) for op in tree.ops):
        raise SpaceError(f"{expressions.shortened(text)} does not limit a number; {_CURE}")
    sides = [tree.left, *tree.comparators]
    names = tuple(dict.fromkeys(name for side in sides for name in _list_names(side)))
    if not names:
        raise SpaceError(f"{expressions.shortened(text)} names no number of a result; {_CURE}")
    if not all(_is_arithmetic(side) for side in sides):
        raise SpaceError(f"{expressions.shortened(text)} compares what is not computed from numbers alone; {_CURE}")
    pairs = []
    for op, left, right in zip(tree.ops, sides, sides[1:], strict=False):
        may_be_equal = isinstance(op, (ast.LtE, ast.GtE))
        pairs.append((left, right, may_be_equal) if isinstance(op, (ast.Lt, ast.LtE)) else (right, left, may_be_equal))
    limit = _Limit(text, names, tuple(pairs))
    try:
        limit.margin(dict.fromkeys(names, _PROBE))
    except TypeError as error:
        raise SpaceError(f"{expressions.shortened(text)} cannot be computed: {error}") from None
    return limit


def _list_names(side: ast.expr) -> Iterator[str]:
    if isinstance(side, (ast.Name, ast.Attribute)):
        yield expressions.name_of(side)
        return
    for part in expressions.parts(side):
        yield from _list_names(part)


def _is_arithmetic(side: ast.expr) -> bool:
    match side:
        case ast.Name() | ast.Attribute():
            return True
        case ast.Constant(value=value):
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case ast.BinOp() | ast.UnaryOp(op=ast.USub() | ast.UAdd()) | ast.Call():
            return all(map(_is_arithmetic, expressions.parts(side)))
    return False


def _pair_margin(small: ast.expr, large: ast.expr, may_be_equal: bool, numbers: Mapping[str, float]) -> float:
    least, most = (float(expressions.compute(side, numbers)) for side in (small, large))
    limits = [abs(number) for side, number in ((small, least), (large, most)) if not any(_list_names(side))]
    beyond = (least - most) / (next(iter(limits), 0.0) or 1.0)
    if math.isnan(beyond):
        raise ValueError("it is not a number")
    return sys.float_info.min if beyond == 0.0 and not may_be_equal else beyond
