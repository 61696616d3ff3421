"""Quantities as people write them in YAML, and the types for them in a `Config` dataclass.

A field annotated with one of the aliases below is read by that alias's rule and then holds the plain value:

    @dataclass(frozen=True)
    class Config:
        memory: MemoryMb = 512             # "4gb" in the YAML, 4096 in the program
        key_file: FilePath | None = None   # relative to the YAML file; must exist
        password: Secret | None = None     # "${env:NAME}" is read from the environment; never shown

Text that reads wrong raises ValueError with a sentence; who calls knows the place.

path_rules   paths as people write them
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

from nnilite.units.path_rules import PathRule

__all__ = [
    "HIDDEN",
    "MAX_CONCURRENCY",
    "AnyPath",
    "Bytes",
    "Concurrency",
    "DirPath",
    "Duration",
    "FilePath",
    "FiniteNumber",
    "GivenBytes",
    "GivenDirPath",
    "GivenDuration",
    "GivenPath",
    "GpuIndices",
    "KeyFile",
    "MemoryMb",
    "Niceness",
    "NonNegativeInt",
    "NonNegativeNumber",
    "PathRule",
    "Port",
    "PositiveInt",
    "PositiveNumber",
    "Secret",
    "SecretText",
    "TrialCount",
    "Unit",
    "cure_for_number",
    "format_csv_text",
    "format_duration",
    "format_size",
    "parse_duration_s",
    "parse_finite",
    "parse_gpu_indices",
    "parse_memory_mb",
    "parse_secret",
    "parse_size_bytes",
]

HIDDEN = "********"
"""What is shown instead of a secret."""

_FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r")

_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_BYTES = {"tb": 1024**4, "gb": 1024**3, "mb": 1024**2, "kb": 1024, "b": 1}
_LONG_UNITS = {
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("hour", "hours", "hr", "hrs"), "h"),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), "m"),
    **dict.fromkeys(("second", "seconds", "sec", "secs"), "s"),
}
_LONGEST_S = 10**12
_LARGEST_B = 10**18
_QUANTITY = re.compile(r"\s*([+-]?[0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_CLOCK = re.compile(r"\s*(?:(\d{1,6})-)?(\d{1,6}):(\d{1,2}):(\d{1,2})\s*", re.ASCII)
_MEANT_NUMBER = re.compile(
    r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{1,3})?)\s*(?:/\s*(\d+)|(%))?\s*", re.IGNORECASE | re.ASCII
)
# With three digits behind it, a comma may also stand between thousands.
_DECIMAL_COMMA = re.compile(r"\s*([+-]?(?:0,\d+|\d+,(?!\d{3}\s*$)\d+))\s*", re.ASCII)
_POWER = re.compile(r"\s*([+-]?\d{1,9}(?:\.\d{1,9})?)\s*(?:\*\*|\^)\s*\(?([+-]?\d{1,2})\)?\s*", re.ASCII)
_ENVIRONMENT = re.compile(r"\$\{env:([^{}]*)\}")


def parse_duration_s(value: object) -> int:
    """Return seconds, rounded up: an int is seconds, text is a number and one of d, h, m, s ("10m", "0.5h", "1 H").

    Raises: ValueError with a sentence.

    >>> parse_duration_s("0.5h")
    1800
    """
    example = 'write seconds as a whole number, or a number and a unit such as "10m" or "1.5h"'
    if isinstance(value, str):
        _refuse_several(value)
        _refuse_clock(value)
        seconds = math.ceil(_amount(value, _SECONDS, "d, h, m, s", example))
    else:
        seconds = _whole(value, example)
    return _check_between(seconds, _LONGEST_S, f"the duration {value!r}", example)


def _refuse_several(text: str) -> None:
    """Refuse a duration of several units, such as "1h30m". Raises: ValueError with the same in one unit."""
    parts = re.findall(r"(\d{1,9})\s*([dhms])\s*", text.lower())
    if len(parts) > 1 and re.fullmatch(r"\s*(\d{1,9}\s*[dhms]\s*)+", text.lower()):
        total = sum(int(number) * _SECONDS[unit] for number, unit in parts)
        raise ValueError(f"{text!r} has several units; write {_spell_in_largest(_SECONDS, 's')(total)}")


def _refuse_clock(text: str) -> None:
    """Refuse a duration as schedulers write it, such as "1-12:00:00". Raises: ValueError with the same in one unit."""
    found = _CLOCK.fullmatch(text)
    if found and (
        total := sum(int(part or 0) * size for part, size in zip(found.groups(), (86400, 3600, 60, 1), strict=True))
    ):
        raise ValueError(f"{text!r} is written as on a clock; write {_spell_in_largest(_SECONDS, 's')(total)}")


def parse_size_bytes(value: object) -> int:
    """Return bytes, rounded up: an int is bytes, text is a number and one of tb, gb, mb, kb, b (of 1024).

    Raises: ValueError with a sentence.

    >>> parse_size_bytes("300mb")
    314572800
    """
    example = 'write bytes as a whole number, or a number and a unit such as "300mb"'
    if isinstance(value, str):
        size = math.ceil(_amount(value, _BYTES, "tb, gb, mb, kb, b", example))
    else:
        size = _whole(value, example)
    return _check_between(size, _LARGEST_B, f"the size {value!r}", example)


def parse_memory_mb(value: object) -> int:
    """Return megabytes, rounded up: an int is megabytes, text is a number and one of tb, gb, mb, kb, b (of 1024).

    Raises: ValueError with a sentence.

    >>> parse_memory_mb("4gb")
    4096
    """
    example = 'write megabytes as a whole number, or a number and a unit such as "4gb"'
    if isinstance(value, str):
        size = math.ceil(_amount(value, _BYTES, "tb, gb, mb, kb, b", example) / _BYTES["mb"])
    else:
        size = _whole(value, example)
    return _check_between(size, _LARGEST_B, f"the size {value!r}", example)


def parse_gpu_indices(value: object) -> list[int]:
    """Return GPU numbers in the order given: 0, "0,1" or [0, 1]. Raises: ValueError with a sentence."""
    example = 'write a number, a list such as [0, 1], or "0,1"'
    parts: list[object]
    if isinstance(value, str):
        parts = [_index(part) for part in value.split(",")]
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    else:
        parts = [value]
    indices = [part for part in parts if isinstance(part, int) and not isinstance(part, bool) and part >= 0]
    if len(indices) != len(parts):
        raise ValueError(f"{value!r} is not a list of GPU numbers from 0; {example}")
    if len(set(indices)) != len(indices):
        raise ValueError(f"{value!r} names a GPU twice")
    return indices


def _index(text: str) -> object:
    return int(text) if text.strip().isdecimal() else text


def _amount(text: str, units: Mapping[str, int], names: str, example: str) -> Decimal:
    """Return the number in `text`, times its unit; exact, so that 1.1h is 3960 s and not 3961."""
    match = _QUANTITY.fullmatch(text)
    try:
        number = Decimal(match.group(1)) if match else Decimal("nan")
    except InvalidOperation:
        number = Decimal("nan")
    if match is None or not number.is_finite():
        raise ValueError(f"{text!r} is not a number with a unit; {example}")
    unit = match.group(2).lower()
    if not unit:
        raise ValueError(f"{text!r} has no unit; the units are {names}")
    if unit not in units:
        longer = next((known for known in units if unit in (known[:1], f"{known[:1]}i", f"{known[:1]}ib")), "")
        longer = longer or next((known for known in units if _LONG_UNITS.get(unit) == known), "")
        hint = f"did you mean {match.group(1)}{longer}?" if longer else f"the units are {names}"
        raise ValueError(f"{text!r} has the unknown unit {unit!r}; {hint}")
    return max(min(number, Decimal(_LARGEST_B)), Decimal(-_LARGEST_B)) * units[unit]


def _whole(value: object, example: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is neither a whole number nor text; {example}")


def _check_between(amount: int, largest: int, what: str, example: str) -> int:
    if amount <= 0:
        raise ValueError(f"{what} must be above 0; {example}")
    if amount > largest:
        raise ValueError(f"{what} is too large; leave the field out for no limit")
    return amount


def format_duration(seconds: float) -> str:
    """Format a duration for people, in the two largest units: "42s", "5m 03s", "1h 02m", "2d 03h"."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02}h"


def format_size(size_bytes: float) -> str:
    """Format a size for people, in units of 1024: "17 B", "1.5 KB", "300 MB"."""
    amount = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if amount >= 100 or amount == int(amount) else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"


class SecretText(str):
    """Text whose `repr` hides it, so that a dataclass that holds it can be logged."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(HIDDEN)


def format_csv_text(text: str) -> str:
    """Return a text for a cell of CSV. One that a spreadsheet would run as a formula gets a quote in front.

    >>> format_csv_text("=HYPERLINK(1)"), format_csv_text("relu")
    ("'=HYPERLINK(1)", 'relu')
    """
    return f"'{text}" if text[:1] in _FORMULA_BEGINS else text


def parse_secret(value: object, environment: Mapping[str, str] = os.environ) -> SecretText:
    """Return the text itself, each `${env:NAME}` in it replaced from the environment. Raises: ValueError."""
    if not isinstance(value, str):
        raise ValueError("must be text; put it in quotes")

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in environment:
            raise ValueError(f"the environment variable {name!r} is not set")
        return environment[name]

    return SecretText(value) if isinstance(value, SecretText) else SecretText(_ENVIRONMENT.sub(replace, value))


@dataclass(frozen=True)
class Unit:
    """The rule behind an alias: how the value is read, and what documents say of it."""

    name: str  # what the reference calls the type
    parse: Callable[[Any], Any]  # raises ValueError with a sentence
    json_schema: Mapping[str, Any] = field(default_factory=dict)  # the values that the YAML may have
    secret: bool = False
    spell: Callable[[Any], str] = str  # as people would write it

    def __hash__(self) -> int:
        return hash(self.name)


def _spell_in_largest(units: Mapping[str, int], smallest: str) -> Callable[[int], str]:
    """Return a function that spells a number in the largest unit in which it is whole."""

    def spell(amount: int) -> str:
        total = amount * units[smallest]
        return next(f"{total // size}{unit}" for unit, size in units.items() if total % size == 0)

    return spell


def _range(low: int, high: int | None) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"must be a whole number, not {value!r}{cure_for_number(value, whole=True)}")
        if value < low or (high is not None and value > high):
            raise ValueError(f"must be {f'from {low} to {high}' if high else f'at least {low}'}, not {value}")
        return value

    return parse


def _at_least(low: float, above: bool) -> Callable[[object], float]:
    """Return a function that reads numbers from `low` on, or above it.

    It accepts the texts that YAML 1.1 leaves of numbers such as 1e-3.
    """

    def parse(value: object) -> float:
        number = _parse_number(value)
        if not math.isfinite(number) or number < low or (above and number == low):
            raise ValueError(f"must be {'above' if above else 'at least'} {low:g}, not {value}")
        return number

    return parse


def _parse_number(value: object) -> float:
    try:
        return float("no" if isinstance(value, bool) or not isinstance(value, (int, float, str)) else value)
    except (ValueError, OverflowError):
        raise ValueError(f"must be a number, not {value!r:.40}") from None


def parse_finite(value: object) -> float:
    """Return a number that is neither infinite nor NaN. Raises: ValueError."""
    number = _parse_number(value)
    if not math.isfinite(number):
        raise ValueError(f"must be a finite number, not {value}")
    return number


_INDICES = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": r"^\s*\d+\s*(,\s*\d+\s*)*$"},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "uniqueItems": True},
    ]
}


def _describe_quantity(units: str) -> dict[str, Any]:
    text = {"type": "string", "pattern": rf"^\s*[0-9.]+([eE][+-]?[0-9]+)?\s*({units})\s*$"}
    return {"anyOf": [{"type": "integer", "minimum": 1}, text]}


_DURATION = _describe_quantity("[dhmsDHMS]")
_SIZE = _describe_quantity("[tgmkTGMK]?[bB]")

_DURATION_UNIT = Unit("duration", parse_duration_s, _DURATION, spell=_spell_in_largest(_SECONDS, "s"))
Duration = Annotated[int, _DURATION_UNIT]
"""Seconds; see `parse_duration_s`."""
GivenDuration = Annotated[int | str, _DURATION_UNIT]
"""The same for a field that programs set, as "2h" too; once it is checked it holds seconds."""
MemoryMb = Annotated[int, Unit("memory size", parse_memory_mb, _SIZE, spell=_spell_in_largest(_BYTES, "mb"))]
"""Megabytes; see `parse_memory_mb`."""
_SIZE_UNIT = Unit("size", parse_size_bytes, _SIZE, spell=_spell_in_largest(_BYTES, "b"))
Bytes = Annotated[int, _SIZE_UNIT]
"""Bytes; see `parse_size_bytes`."""
GivenBytes = Annotated[int | str, _SIZE_UNIT]
"""The same for a field that programs set, as "2gb" too; once it is checked it holds bytes."""
GpuIndices = Annotated[list[int], Unit("GPU indices", parse_gpu_indices, _INDICES)]
"""See `parse_gpu_indices`."""
Secret = Annotated[str, Unit("secret", parse_secret, {"type": "string"}, secret=True)]
"""Hidden in every output; see `parse_secret`."""
PositiveInt = Annotated[int, Unit("integer > 0", _range(1, None), {"type": "integer", "minimum": 1})]
NonNegativeInt = Annotated[int, Unit("integer ≥ 0", _range(0, None), {"type": "integer", "minimum": 0})]
NonNegativeNumber = Annotated[float, Unit("number ≥ 0", _at_least(0.0, above=False), {"type": "number", "minimum": 0})]
PositiveNumber = Annotated[
    float, Unit("number > 0", _at_least(0.0, above=True), {"type": "number", "exclusiveMinimum": 0})
]
FiniteNumber = Annotated[float, Unit("number", parse_finite, {"type": "number"})]
MAX_CONCURRENCY = 99_999
"""As in NNI."""
TrialCount = Annotated[
    int, Unit("integer > 0", _range(1, 1_000_000_000), {"type": "integer", "minimum": 1, "maximum": 1_000_000_000})
]
Concurrency = Annotated[
    int,
    Unit(
        f"integer from 1 to {MAX_CONCURRENCY}",
        _range(1, MAX_CONCURRENCY),
        {"type": "integer", "minimum": 1, "maximum": MAX_CONCURRENCY},
    ),
]
Niceness = Annotated[int, Unit("integer from 0 to 19", _range(0, 19), {"type": "integer", "minimum": 0, "maximum": 19})]
"""How far a process steps back where all processors are busy, as the command `nice` counts it."""
Port = Annotated[int, Unit("port", _range(1, 65535), {"type": "integer", "minimum": 1, "maximum": 65535})]
FilePath = Annotated[Path, PathRule.FILE]
"""An existing file; relative to the YAML file's folder."""
DirPath = Annotated[Path, PathRule.DIRECTORY]
"""An existing folder; relative to the YAML file's folder."""
GivenDirPath = Annotated[Path | str, PathRule.DIRECTORY]
"""The same for a field that programs set, as a text too; once it is checked it holds a Path."""
KeyFile = Annotated[Path, PathRule.KEY]
"""An existing private key, or one that ssh-agent has and whose public half exists."""
AnyPath = Annotated[Path, PathRule.ANY]
"""A path that may be missing; relative to the YAML file's folder."""
GivenPath = Annotated[Path | str, PathRule.ANY]
"""The same for a field that programs set, as a text too; once it is checked it holds a Path."""


def cure_for_number(value: object, *, whole: bool = False) -> str:
    """Return what to write in place of a value that can only be meant as a number: mostly a text in quotes.

    It begins with "; ", to follow a sentence on what is wrong, and is "" where nothing better is known.

    Example: `cure_for_number("0.1")` is "; write 0.1 without quotes"
    """
    number = read_meant_number(value)
    if number is None or (whole and number != int(number)):
        return ""
    if whole or (number == int(number) and abs(number) < 1e15):
        return f"; write {int(number)}" + (" without quotes" if isinstance(value, str) else "")
    # YAML 1.1 reads 1e-05 as a text.
    return "; write " + re.sub(r"^(-?\d+)e([+-])0*", r"\1.0e\2", f"{number:.15g}") + " without quotes"


def read_meant_number(value: object) -> float | None:
    """Return the number that a text such as "0,1", "1e-5", "10%", "1/8" or "10**-5" stands for; None for others."""
    if isinstance(value, float) and math.isfinite(value):
        return value
    comma = _DECIMAL_COMMA.fullmatch(value) if isinstance(value, str) else None
    if comma is not None:
        return float(comma[1].replace(",", "."))
    power = _POWER.fullmatch(value) if isinstance(value, str) else None
    if power is not None and float(power[1]):
        try:
            return float(power[1]) ** int(power[2])
        except OverflowError:
            return None
    found = _MEANT_NUMBER.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    number, divisor = float(found[1]), float(found[2] or 1) * (100 if found[3] else 1)
    return number / divisor if divisor and math.isfinite(number / divisor) else None
