"""How to write what was meant, where a parameter is written as other programs do: the ends of sentences on faults."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nnilite.space._parameter import ParameterKind
from nnilite.space.distribution_synonyms import (
    MOST_OPTIONS,
    name_parts,
    read_drawing_call,
    translate_type,
    write_distribution,
)

if TYPE_CHECKING:
    from nnilite.records import Json

_LONGEST_SHOWN = 80


def cure_object(given: Mapping[str, Json]) -> str:
    """Return how to write a parameter whose `_type` or `_value` is missing; "" if that cannot be guessed."""
    if given and all(isinstance(value, Mapping) and "_type" in value for value in given.values()):
        return "; it holds parameters itself: write them one level up"
    parts = name_parts(given)
    if len(given) == 1 and "type" not in parts and translate_type(next(iter(given))):  # {"grid_search": [1, 2]}
        parts = {"type": next(iter(given)), "value": next(iter(given.values()))}
    return _show_distribution(parts)


def _show_distribution(parts: Mapping[str, Json]) -> str:
    written = write_distribution(parts)
    return "" if written is None else show("; write it as %s", written)


def cure_plain(name: str, given: Json) -> str:
    """Return how to write what should be an object: a value, a list of values, a call, or a comment."""
    if str(name).strip("_").lower() in _COMMENTS:
        return "; JSON has no comments: remove it, or write it as YAML, after a #"
    if isinstance(given, str) and (call := read_drawing_call(given)) is not None and (cure := _show_distribution(call)):
        return cure
    if isinstance(given, str) and _SWEEP.fullmatch(given):
        return show('; to choose one of them, write {"_type": "choice", "_value": %s}', _split(given))
    if given is None or isinstance(given, (str, int, float)):
        return show('; for a value that stays the same, write {"_type": "choice", "_value": %s}', [given])
    if isinstance(given, (list, tuple)) and given:
        if _is_range(given):
            uniform = {"_type": "uniform", "_value": given}
            return show("; for a range write %s, to choose one of them a choice", uniform)
        return show('; to choose one of them, write {"_type": "choice", "_value": %s}', given)
    return ""


def _is_range(given: Sequence[Json]) -> bool:
    """Return whether two numbers are hardly meant as options: they stand in ( ), or one is a fraction."""
    if len(given) != 2 or not all(type(one) in (int, float) for one in given):
        return False
    return bool(given[0] < given[1]) and (isinstance(given, tuple) or float in map(type, given))


def cure_list(given: Json) -> str:
    """Return how to write a list of parameters with their names in them; "" if that cannot be guessed."""
    if not isinstance(given, (list, tuple)) or not given or not isinstance(given[0], Mapping):
        return ""
    first = dict(given[0])
    name = next((first.pop(key) for key in ("name", "_name", "parameter", "parameterName") if key in first), None)
    if not isinstance(name, str):
        return ""
    return f"; write its name in front of each parameter, as in {json.dumps(name)}: {{...}}"


_COMMENTS = ("comment", "comments", "note", "notes", "description", "doc", "//", "#")
_SWEEP = re.compile(r"[\w.+-]+(?:\s*,\s*[\w.+-]+)+")
"""Options as Hydra takes them: 16,32,64."""
_BOUNDS = re.compile(
    r"\s*[\[(]?(-?\d{1,15}(?:\.\d{1,15})?(?:e-?\d{1,2})?)\s*(?:-|\.\.+|\bto\b|;|:)\s*"
    r"(-?\d{1,15}(?:\.\d{1,15})?(?:e-?\d{1,2})?)[\])]?\s*",
    re.ASCII,
)
"""Two ends of a range: 0-1, 0..1, 0 to 1, 0:1."""
_RANGE = re.compile(r"\s*(?:list\()?range\((-?\d{1,6})(?:,\s*(-?\d{1,6}))?(?:,\s*(-?[1-9]\d{0,5}))?\)\)?\s*")


def cure_file_name(space: Json) -> str:
    """Return what to write for the name of a file in place of a search space; "" for anything else."""
    is_name = isinstance(space, str) and space.lower().endswith((".json", ".yaml", ".yml"))
    return f"; the name of a file is written as searchSpaceFile: {space}" if is_name else ""


def cure_value(kind: ParameterKind, value: Json) -> str:
    """Return how to write a `_value` that is not a list; "" if that cannot be guessed."""
    numbers = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if numbers is not None:
        options = list(range(*(int(one) for one in numbers.groups() if one)))
        return show("; write %s", options) if 0 < len(options) <= MOST_OPTIONS else ""
    if isinstance(value, str) and value.lstrip().startswith("("):
        return "; write it in [ ], not in ( )"
    if isinstance(value, str) and kind is not ParameterKind.CHOICE:
        range_text = _BOUNDS.fullmatch(value)
        ends = [json.loads(part) for part in range_text.groups()] if range_text else _split(value)
        return show("; write %s", ends) if all(type(one) in (int, float) for one in ends) else ""
    if isinstance(value, str):
        return show("; write %s", _split(value))
    if isinstance(value, Mapping) and kind is ParameterKind.CHOICE:
        return show("; write %s", list(value))
    if isinstance(value, Mapping):
        parts = name_parts(value)
        bounds = [parts[name] for name in ("low", "high", "q") if name in parts]
        return show("; write %s", bounds) if len(bounds) > 1 else ""
    if kind is ParameterKind.RANDINT and isinstance(value, int) and value > 0:
        return f"; did you mean [0, {value}]?"
    return show("; write %s", [value]) if kind is ParameterKind.CHOICE else ""


def _split(text: str) -> list[Json]:
    """Return the numbers of a text such as "0, 1", or the text itself as the only part."""
    try:
        return [json.loads(part.replace("'", '"')) for part in text.strip(" []").split(",")]
    except (ValueError, RecursionError):
        return [part.strip() for part in text.split(",")]


def cure_count(kind: ParameterKind, value: Sequence[Json]) -> str:
    """Return how to write a `_value` with too many or too few numbers; "" if that cannot be guessed."""
    [first, *more] = value or [None]
    if not more and isinstance(first, (list, tuple)):
        return show("; write %s", first)
    if not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in value) or not value:
        return ""
    if kind.quantised and len(value) == 2:
        return f"; q is the step between values, as in {json.dumps([*value, 1])}"
    if not more and first > 0 and not (kind.normal or kind.log):
        return f"; did you mean {json.dumps([0, first, 1] if kind.quantised else [0, first])}?"
    if not more:
        return ""
    stepped = f"q{kind.value}"
    if len(value) == 3 and stepped in {one.value for one in ParameterKind}:
        return f"; with a step it is called {stepped}"
    return show("; to choose one of them, write %s", {"_type": "choice", "_value": value})


def show(sentence: str, value: Json) -> str:
    """Return a sentence with a value in it; "" if that is long, or no JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return ""
    return sentence % text if len(text) <= _LONGEST_SHOWN else ""
