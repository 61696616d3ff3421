"""One parameter of a search space: its kind, its domain, and how it is drawn. Offered by `nnilite.space`."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from nnilite.errors import SpaceError

if TYPE_CHECKING:
    from nnilite.records import Json

Key = tuple[str | int, ...]
"""Where a parameter is: its name, or names with the numbers of the options chosen between them."""

Flat = dict[Key, int | float]
"""Parameters as `SearchSpace.flatten` gives them: the raw value of each active parameter, by its path."""

_TOLERANCE = 1e-9
MOST_STEPS = 2**53  # beyond, multiples of q are no longer exact
_LARGEST_EXPONENT = 700.0  # exp of more is not a float


class ParameterKind(str, Enum):
    """NNI's `_type` strings, and whole numbers that NNI lacks: on a log scale, with a step, or both."""

    CHOICE = "choice"
    RANDINT = "randint"
    UNIFORM = "uniform"
    QUNIFORM = "quniform"
    LOGUNIFORM = "loguniform"
    QLOGUNIFORM = "qloguniform"
    NORMAL = "normal"
    QNORMAL = "qnormal"
    LOGNORMAL = "lognormal"
    QLOGNORMAL = "qlognormal"
    LOGRANDINT = "lograndint"
    QRANDINT = "qrandint"
    QLOGRANDINT = "qlograndint"

    @property
    def log(self) -> bool:
        """Its logarithm is what is uniform or normal."""
        return "log" in self.value

    @property
    def quantised(self) -> bool:
        """Whether values are rounded to multiples of `q`."""
        return self.value.startswith("q")

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return self.value.endswith("randint")

    @property
    def normal(self) -> bool:
        """Unbounded, with `mu` and `sigma`, which describe the logarithm if `log`."""
        return self.value.endswith("normal")


@dataclass(frozen=True)
class Parameter:
    """One parameter of the flattened space. What its kind does not have is None (or empty)."""

    path: Key
    kind: ParameterKind
    values: tuple[Json, ...] = ()  # options of a choice; of a nested choice as written, with their subspaces
    low: float | None = None
    high: float | None = None  # not included for randint, included for all others
    q: float | None = None
    mu: float | None = None
    sigma: float | None = None
    parent: tuple[Key, int] | None = None  # active if that choice has chosen that option; None: always
    nested: bool = False  # a choice between subspaces
    ordered: bool = False  # a choice whose options are numbers in ascending order: near ones are alike
    default: int | float | None = None  # the raw value that is tried first, and near which good ones are expected

    @property
    def name(self) -> str:
        """The key under which the trial finds it."""
        return str(self.path[-1])

    @property
    def categorical(self) -> bool:
        """Whether its values have no order. NNI's tuners see choice and randint as such."""
        return self.kind in (ParameterKind.CHOICE, ParameterKind.RANDINT)

    @property
    def unordered(self) -> bool:
        """Whether it is a choice whose options have no order."""
        return self.kind is ParameterKind.CHOICE and not self.ordered

    @property
    def log(self) -> bool:
        """Its logarithm is what is uniform or normal."""
        return self.kind.log

    @property
    def log_ends(self) -> tuple[float, float] | None:
        """The logarithms between which a value of a rounded log kind is drawn, so that each has its share of the scale.

        For whole numbers they lie half a step beyond both ends; a qloguniform has half of a step there, as NNI's. None
        for all other kinds, and for a single value.
        """
        if not self.log or self.low is None or self.high is None or self.q is None or self.count == 1:
            return None
        beyond = self.q / 2 if self.kind.whole else 0.0
        return math.log(self.low - beyond), math.log(self.high + beyond)

    @property
    def count(self) -> int | None:
        """How many raw values it can take; None if there is no end of them."""
        if self.kind is ParameterKind.CHOICE:
            return len(self.values)
        if self.low is None or self.high is None:
            return None
        if self.kind is ParameterKind.RANDINT:
            return int(self.high) - int(self.low)
        if self.q is not None:
            return round(self.high / self.q) - round(self.low / self.q) + 1
        return 1 if self.low == self.high else None

    def points(self) -> Iterator[int | float]:
        """Yield all raw values in ascending order. Raises: SpaceError if `count` is None."""
        count = self.count
        if count is None:
            raise SpaceError(f"{format_path(self.path)} is continuous: its values cannot be listed")
        if self.q is not None and self.low is not None:
            first = round(self.low / self.q)
            return (self.legal((first + k) * self.q) for k in range(count))
        if self.kind is ParameterKind.UNIFORM or self.kind is ParameterKind.LOGUNIFORM:
            return iter((float(self.low or 0.0),))
        first = int(self.low or 0)
        return iter(range(first, first + count))

    def sample(self, rng: random.Random) -> int | float:
        """Return one raw value at random, distributed as NNI does."""
        if self.kind is ParameterKind.CHOICE:
            return rng.randrange(len(self.values))
        if self.kind is ParameterKind.RANDINT:
            return rng.randrange(int(self.low or 0), int(self.high or 0))
        return self.legal(self._draw_raw(rng))

    def _draw_raw(self, rng: random.Random) -> float:
        if self.mu is not None and self.sigma is not None:
            drawn = rng.gauss(self.mu, self.sigma)
            return math.exp(min(drawn, _LARGEST_EXPONENT)) if self.log else drawn
        if self.log_ends is not None:
            return math.exp(rng.uniform(*self.log_ends))
        low, high = float(self.low or 0.0), float(self.high or 0.0)
        if self.kind is ParameterKind.QRANDINT:
            return low + rng.randrange(self.count or 1) * (self.q or 1)
        return math.exp(rng.uniform(math.log(low), math.log(high))) if self.log else rng.uniform(low, high)

    def legal(self, value: float) -> int | float:
        """Return a number made legal: rounded to `q` (halves to even), then moved into [low, high].

        It is an int for the kinds of whole numbers.
        """
        number = float(value)
        if not math.isfinite(number):
            raise SpaceError(f"{format_path(self.path)}: {number} is not a finite number")
        # Beyond, each number is a multiple as exactly as a float can be.
        if self.q is not None and abs(number / self.q) < MOST_STEPS:
            number = round(number / self.q) * self.q
        if self.low is not None and self.high is not None:
            number = min(max(number, self.low), self.high)
        return int(number) if self.kind.whole else float(number)

    def raw(self, value: Json) -> int | float:
        """Return the raw value for `value`, which a trial got. Raises: SpaceError if it is not of this parameter."""
        if self.kind is ParameterKind.CHOICE:
            return self._option(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
            raise SpaceError(f"{format_path(self.path)}: {brief(value)} is not a number")
        if self.kind is ParameterKind.RANDINT:
            return self._read_integer(value)
        legal = self.legal(value)
        if not math.isclose(legal, value, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE * (self.q or 0.0)):
            raise SpaceError(f"{format_path(self.path)}: {value} is not {self.domain}")
        if self.kind.log and self.kind.normal and (value < 0 or (value == 0 and self.q is None)):
            raise SpaceError(f"{format_path(self.path)}: {value} is not {self.domain}")
        return legal

    def _read_integer(self, value: float) -> int:
        number = whole(value)
        if number is None or not int(self.low or 0) <= number < int(self.high or 0):
            raise SpaceError(f"{format_path(self.path)}: {value} is not {self.domain}")
        return number

    def _option(self, value: Json) -> int:
        sought = value
        if self.nested:
            sought = value.get("_name") if isinstance(value, Mapping) else None
        try:
            number = self._numbers.get(write_canonical(sought))
        except (TypeError, ValueError):  # not JSON
            number = None
        if number is None and not self.nested:
            number = next((k for k, option in enumerate(self.values) if _alike(option, value)), None)
        if number is None:
            raise SpaceError(f"{format_path(self.path)}: {brief(value)} is not {self.domain}")
        return number

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The number of each option, by its JSON text (of a subspace: that of its name)."""
        options = (option["_name"] if self.nested else option for option in self.values)
        return {write_canonical(option): k for k, option in enumerate(options)}

    @property
    def domain(self) -> str:
        """What its values are, in words."""
        if self.nested:
            return f"one of the options named {', '.join(repr(option['_name']) for option in self.values)}"
        if self.kind is ParameterKind.CHOICE:
            return f"one of {brief(list(self.values))}"
        if self.kind is ParameterKind.RANDINT:
            return f"a whole number from {self.low} up to but not including {self.high}"
        what = f"a multiple of {self.q:g}" if self.q else "a number"
        if self.kind.whole:
            what = "a whole number" if self.q == 1 else what
            return f"{what} from {self.low} to {self.high}"
        if self.kind.normal:
            return f"{what} above 0" if self.kind is ParameterKind.LOGNORMAL else what
        return f"{what} from {self.low:g} to {self.high:g}"


def write_canonical(value: Json) -> str:
    """Return a JSON text that is the same for equal values, in any order of keys; 1, 1.0 and true are three."""
    return json.dumps(value, sort_keys=True)


def _is_finite(value: float) -> bool:
    """Return whether a number is finite as a float, too: whole numbers may be larger than any of these."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def whole(value: Json) -> int | None:
    """Return the integer that a number is (of numpy's kinds too), None if it is not one."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number == value else None


def _alike(option: Json, value: Json) -> bool:
    """Compare numbers that went through another language: 1.0 comes back as 1."""
    numbers = [isinstance(v, (int, float)) and not isinstance(v, bool) for v in (option, value)]
    return all(numbers) and bool(option == value)


def format_path(path: Key) -> str:
    """Return a path for people: the names without the options."""
    return ".".join(str(part) for part in path[::2])


def brief(value: Json) -> str:
    """Return a value for people, cut to a line."""
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
