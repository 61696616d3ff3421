"""What makes a search space wrong. `check` goes once through the JSON, for parameters and all faults."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nnilite.errors import SpaceError
from nnilite.space._parameter import MOST_STEPS, Key, Parameter, ParameterKind, brief, write_canonical
from nnilite.space.distribution_synonyms import translate_type
from nnilite.space.space_cures import (
    cure_count,
    cure_file_name,
    cure_list,
    cure_object,
    cure_plain,
    cure_value,
    show,
)
from nnilite.units import cure_for_number

if TYPE_CHECKING:
    from nnilite.records import Json

Fault = tuple[tuple[str | int, ...], str]
"""Where in the JSON, as keys and list positions, and what is wrong, as a sentence."""

_ARCHITECTURE = ("layer_choice", "input_choice", "mutable_layer", "mutable_type", "optional_layer")
_LONGEST_UNIT = 20
_EXAMPLE = '{"_type": "uniform", "_value": [0, 1]}'
_SHAPE = {
    ParameterKind.RANDINT: "[low, high], two whole numbers, high itself not included",
    ParameterKind.UNIFORM: "[low, high]",
    ParameterKind.QUNIFORM: "[low, high, q]",
    ParameterKind.LOGUNIFORM: "[low, high]",
    ParameterKind.QLOGUNIFORM: "[low, high, q]",
    ParameterKind.NORMAL: "[mu, sigma]",
    ParameterKind.QNORMAL: "[mu, sigma, q]",
    ParameterKind.LOGNORMAL: "[mu, sigma]",
    ParameterKind.QLOGNORMAL: "[mu, sigma, q]",
    ParameterKind.LOGRANDINT: "[low, high], two whole numbers above 0, both included",
    ParameterKind.QRANDINT: "[low, high, q], whole numbers, low and high included",
    ParameterKind.QLOGRANDINT: "[low, high, q], whole numbers above 0, low and high included",
}


def check(space: Json) -> tuple[list[Parameter], list[Fault]]:
    """Return the flattened parameters, and what is wrong (then the parameters mean nothing)."""
    reader = _SpaceReader()
    if not isinstance(space, Mapping):
        cure = cure_list(space) or cure_file_name(space)
        reader.faults.append(((), f"a search space is an object of parameters, such as {{'x': {_EXAMPLE}}}{cure}"))
    elif isinstance(space.get("_type"), str) and "_value" in space:
        cure = show("; give it a name, as in %s", {"x": dict(space)})
        reader.faults.append(((), f"the search space is one parameter without a name{cure}"))
    elif not space:
        reader.faults.append(((), f"the search space is empty; give at least one parameter, such as 'x': {_EXAMPLE}"))
    else:
        reader.level(drop_repeats(space), (), (), None)
    return reader.parameters, reader.faults


def drop_repeats(space: Json, faults: list[Fault] | None = None, at: Key = ()) -> Json:
    """Return the space with each option of a choice once, as NNI takes an option that is given twice.

    What is left out is added to `faults`. Options of nested parameters are faults if their names are the same.
    """
    if not isinstance(space, Mapping):
        return space
    return {name: _drop_repeated_options(given, faults, (*at, name)) for name, given in space.items()}


def _drop_repeated_options(given: Json, faults: list[Fault] | None, at: Key) -> Json:
    options = given.get("_value") if isinstance(given, Mapping) and given.get("_type") == "choice" else None
    if not isinstance(options, (list, tuple)):
        return given
    kept: dict[str, Json] = {}
    for k, option in enumerate(options):
        place = (*at, "_value", k)
        if isinstance(option, Mapping) and "_name" in option:
            kept[f"option {k}"] = drop_repeats(option, faults, place)
            continue
        text = f"option {k}" if _explain_not_json(option) else write_canonical(option)
        if text in kept and faults is not None:
            faults.append((place, f"{brief(option)} is given twice, and counts once"))
        kept.setdefault(text, option)
    return {**given, "_value": list(kept.values())}


def dotted(path: Sequence[str | int]) -> str:
    """Return a place in JSON for people: `layer._value[1].size`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


class _SpaceReader:
    """Collects parameters and faults; `at` is the place in the JSON, `path` the parameter's own."""

    def __init__(self) -> None:
        self.parameters: list[Parameter] = []
        self.faults: list[Fault] = []

    def level(self, level: Mapping[Any, Json], path: Key, at: Key, parent: tuple[Key, int] | None) -> None:
        for name, given in level.items():
            if not isinstance(name, str):
                self.faults.append((at, f"the parameter name {name!r} is not text; put it in quotes"))
            elif not name.strip():
                self.faults.append((at, "a parameter has an empty name; give it the one that the trial uses"))
            elif parent is not None and name == "_name":
                continue
            else:
                self.parameter(given, (*path, name), (*at, name), parent)

    def parameter(self, given: Json, path: Key, at: Key, parent: tuple[Key, int] | None) -> None:
        kind = self.kind(given, at)
        if kind is None or not self.check_extras(given, kind, at):
            return
        value, count = given["_value"], len(self.parameters)
        below = (*at, "_value")
        if not isinstance(value, (list, tuple)):
            self.faults.append((below, f"must be a list, not {value!r}{cure_value(kind, value)}"))
        elif kind is ParameterKind.CHOICE:
            self.choice(value, path, below, parent, given.get("_ordered", False))
        else:
            self.number(kind, value, path, below, parent)
        if "_default" in given and len(self.parameters) > count:
            self.take_default(count, given["_default"], (*at, "_default"))

    def take_default(self, number: int, value: Json, at: Key) -> None:
        """Give a parameter its default, which is the name of the option for a choice between subspaces."""
        parameter = self.parameters[number]
        try:
            raw = parameter.raw({"_name": value} if parameter.nested else value)
        except SpaceError:
            self.faults.append((at, f"must be {parameter.domain}, not {brief(value)}"))
            return
        self.parameters[number] = replace(parameter, default=raw)

    def kind(self, given: Json, at: Key) -> ParameterKind | None:
        if not isinstance(given, Mapping):
            cure = "" if _explain_not_json(given) else cure_plain(str(at[-1]), given)
            self.faults.append((at, f"must be an object such as {_EXAMPLE}, not {given!r}{cure}"))
            return None
        for key in ("_type", "_value"):
            if key not in given:
                close = difflib.get_close_matches(key, [str(k) for k in given], n=1)
                hint = f"; by {close[0]!r}, did you mean {key!r}?" if close else f"; write it as {_EXAMPLE}"
                self.faults.append((at, f"has no {key!r}{cure_object(given) or hint}"))
                return None
        try:
            return ParameterKind(given["_type"])
        except ValueError:
            self.faults.append(((*at, "_type"), _describe_unknown_type(given["_type"])))
            return None

    def check_extras(self, given: Mapping[str, Json], kind: ParameterKind, at: Key) -> bool:
        """Return whether `_unit` and `_ordered`, which may be left out, are usable."""
        unit, ordered = given.get("_unit", ""), given.get("_ordered", False)
        if not isinstance(unit, str) or len(unit) > _LONGEST_UNIT:
            self.faults.append(((*at, "_unit"), f"must be a text of at most {_LONGEST_UNIT} characters, not {unit!r}"))
        elif not isinstance(ordered, bool):
            self.faults.append(((*at, "_ordered"), f"must be true or false, not {ordered!r}"))
        elif ordered and kind is not ParameterKind.CHOICE:
            self.faults.append(((*at, "_ordered"), f"is for choices; the values of {kind.value} have an order anyway"))
        else:
            return True
        return False

    def choice(
        self, options: Sequence[Json], path: Key, at: Key, parent: tuple[Key, int] | None, ordered: bool
    ) -> None:
        if not options:
            self.faults.append((at, "has no option to choose from"))
            return
        named = [isinstance(option, Mapping) and "_name" in option for option in options]
        nested = all(named)
        if not self.distinct(options, at, nested) or not self.sensible(options, named, at):
            return
        if ordered and not _is_ascending(options):
            self.faults.append((at, "must be numbers in ascending order, since _ordered is true"))
            return
        self.parameters.append(
            Parameter(path, ParameterKind.CHOICE, tuple(options), parent=parent, nested=nested, ordered=ordered)
        )
        if nested:
            for k, option in enumerate(options):
                self.level(option, (*path, k), (*at, k), (path, k))

    def distinct(self, options: Sequence[Json], at: Key, nested: bool) -> bool:
        """Return whether all options are JSON, and different; subspaces have different names."""
        seen: dict[str, int] = {}
        for k, option in enumerate(options):
            fault = _explain_not_json(option)
            if fault:
                self.faults.append(((*at, k), fault))
                return False
            if nested and (not isinstance(option["_name"], str) or not option["_name"]):
                self.faults.append(((*at, k, "_name"), f"must be text, not {option['_name']!r}"))
                return False
            text = write_canonical(option["_name"] if nested else option)
            if text in seen:
                what = f"the name {option['_name']!r}" if nested else f"{option!r}"
                self.faults.append(((*at, k), f"{what} is given twice, as option {seen[text]} and {k}"))
                return False
            seen[text] = k
        return True

    def sensible(self, options: Sequence[Json], named: Sequence[bool], at: Key) -> bool:
        """Return whether all options are subspaces or none is.

        A parameter in a mixture would reach the trial as it is.
        """
        if all(named):
            return True
        for k, option in enumerate(options):
            values = option.values() if isinstance(option, Mapping) else ()
            if any(isinstance(value, Mapping) and "_type" in value for value in values):
                hint = "every option must be an object with its own '_name' for nested parameters to work"
                self.faults.append(((*at, k), f"holds a parameter, but {hint}"))
                return False
        return True

    def number(
        self, kind: ParameterKind, value: Sequence[Json], path: Key, at: Key, parent: tuple[Key, int] | None
    ) -> None:
        expected = 3 if kind.quantised else 2
        if len(value) != expected:
            self.faults.append(
                (at, f"{kind.value} takes {_SHAPE[kind]}, not {len(value)} values{_explain_count(kind, value)}")
            )
            return
        for k, number in enumerate(value):
            fault = _explain_not_number(number, whole=kind.whole)
            if fault:
                self.faults.append(((*at, k), fault))
                return
        exact = int if kind.whole else float
        one, two = exact(value[0]), exact(value[1])
        q = exact(value[2]) if kind.quantised else 1 if kind is ParameterKind.LOGRANDINT else None
        fault = _find_normal_fault(kind, one, two, q) if kind.normal else _find_range_fault(kind, one, two, q)
        if fault:
            self.faults.append((at, fault))
        elif kind.normal:
            self.parameters.append(Parameter(path, kind, mu=one, sigma=two, q=q, parent=parent))
        else:
            self.parameters.append(Parameter(path, kind, low=one, high=two, q=q, parent=parent))


def _explain_count(kind: ParameterKind, value: Sequence[Json]) -> str:
    """Return what to write for another number of values, such as earlier versions of NNI had: the end of a sentence."""
    if kind is ParameterKind.RANDINT and len(value) == 1 and not _explain_not_number(value[0], whole=True):
        return f"; before NNI 0.7 this was [0, {value[0]}]"
    if kind.normal and len(value) > 1 and isinstance(value[0], str):
        return "; leave out the label"
    return cure_count(kind, value)


def _is_ascending(options: Sequence[Json]) -> bool:
    numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in options)
    return numbers and all(one < other for one, other in pairwise(options))


def _describe_unknown_type(given: Json) -> str:
    if given in _ARCHITECTURE:
        return f"{given!r} is for architecture search, which nnilite does not do"
    known, meant = [kind.value for kind in ParameterKind], translate_type(given)
    close = [meant] if meant else difflib.get_close_matches(str(given).lower(), known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"the types are {', '.join(known)}"
    return f"there is no type {given!r}; {hint}"


def _explain_not_number(value: Json, whole: bool) -> str | None:
    if isinstance(value, str):
        return f"must be a number, not the text {value!r}{cure_for_number(value)}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"must be a number, not {value!r}"
    if isinstance(value, int) and abs(value) > 10**300:
        return "is too large a number"
    if not math.isfinite(value):
        return f"must be a finite number, not {value!r}"
    return f"must be a whole number, not {value!r}; uniform draws fractions" if whole and value != int(value) else None


def _find_range_fault(kind: ParameterKind, low: float, high: float, q: float | None) -> str | None:
    if low > high:
        return f"low ({low:g}) is above high ({high:g}); swap them"
    if kind is ParameterKind.RANDINT and low == high:
        return f"is empty: {kind.value} leaves out high, so [{low:g}, {low + 1:g}] is the number {low:g} alone"
    if kind.log and low <= 0:
        return f"low must be above 0 for {kind.value}, not {low:g}: it works on the logarithm{_cure_low(low, high)}"
    return _step_fault(q, max(abs(low), abs(high))) or _end_fault(kind, low, high, q)


def _cure_low(low: float, high: float) -> str:
    if -20 <= low < high <= 5 and low == round(low) and high == round(high) and low < 0:
        return f"; if these are powers of ten, write {json.dumps([10.0**low, 10.0**high])}"
    return f"; write a small number such as {min(high / 1000, 0.001):g}" if low == 0 < high else ""


def _end_fault(kind: ParameterKind, low: float, high: float, q: float | None) -> str | None:
    """Return why whole numbers with a step do not begin and end with one of them."""
    if not kind.whole or not q or not (low % q or high % q):
        return None
    fitting = f"[{max(low // q, 1 if kind.log else low // q) * q:g}, {-(-high // q) * q:g}, {q:g}]"
    return f"low and high are values, too, so they must be multiples of q ({q:g}), such as {fitting}"


def _find_normal_fault(kind: ParameterKind, mu: float, sigma: float, q: float | None) -> str | None:
    if sigma <= 0:
        return f"sigma must be above 0, not {sigma:g}"
    if kind.log and mu + 10 * sigma > 700:
        return f"mu and sigma describe the logarithm for {kind.value}; exp({mu + 10 * sigma:g}) is too large"
    # Three deviations of a logarithm: a number at ten is hardly ever drawn, and needs no step.
    return _step_fault(q, math.exp(mu + 3 * sigma) if kind.log else abs(mu) + 10 * sigma)


def _step_fault(q: float | None, largest: float) -> str | None:
    if q is None:
        return None
    if q <= 0:
        return f"q, the step between values, must be above 0, not {q:g}"
    if largest > q * MOST_STEPS:
        return f"q ({q:g}) is too small against {largest:g}: its multiples are no longer exact"
    return None


def _explain_not_json(value: Json) -> str | None:
    """Return what in a choice's option would not reach the trial as it is."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return f"{value!r} has a key that is not text"
        faults = (_explain_not_json(item) for item in value.values())
        return next((fault for fault in faults if fault), None)
    if isinstance(value, (list, tuple)):
        return next((fault for fault in map(_explain_not_json, value) if fault), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value!r} is not a JSON value; write it as text"
    if value is None or isinstance(value, (str, int, float)):
        return None
    return f"{value!r} is not a JSON value"
