"""One search space, checked, and the forms of its parameters."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from nnilite.errors import Place, SpaceError
from nnilite.space._parameter import Flat, Key, Parameter, ParameterKind, brief, format_path, whole
from nnilite.space.space_checks import check, dotted, drop_repeats

if TYPE_CHECKING:
    from nnilite.records import Json


@dataclass(frozen=True)
class SearchSpace:
    """A checked search space. `parameters` are in the order written, each parent before its children."""

    json: dict[str, Json]
    parameters: tuple[Parameter, ...] = field(repr=False)

    @classmethod
    def parse(cls, json: Json, place: Place | None = None) -> SearchSpace:
        """Check NNI's JSON from `place`. Raises: SpaceError for the first fault."""
        parameters, faults = check(json)
        if faults:
            path, message = faults[0]
            given = place or Place()
            where = dotted((given.field, *path) if given.field else path)
            raise SpaceError(message, Place(given.file, given.line, where or None))
        return cls(drop_repeats(copy.deepcopy(dict(json))), tuple(parameters))

    @cached_property
    def by_path(self) -> dict[Key, Parameter]:
        """Each parameter by its path."""
        return {parameter.path: parameter for parameter in self.parameters}

    @cached_property
    def _children(self) -> dict[tuple[Key, int] | None, tuple[Parameter, ...]]:
        children: dict[tuple[Key, int] | None, tuple[Parameter, ...]] = {}
        for parameter in self.parameters:
            children[parameter.parent] = (*children.get(parameter.parent, ()), parameter)
        return children

    def children(self, path: Key | None = None, option: int = 0) -> tuple[Parameter, ...]:
        """Return what option `option` of the nested choice at `path` brings; without a path, the top level."""
        return self._children.get(None if path is None else (path, option), ())

    @cached_property
    def size(self) -> int | None:
        """The number of different parameter sets, None if there is no end of them."""
        return self._size(self.children())

    def _size(self, parameters: tuple[Parameter, ...]) -> int | None:
        total = 1
        for parameter in parameters:
            count = parameter.count
            if parameter.nested:
                parts = [self._size(self.children(parameter.path, k)) for k in range(len(parameter.values))]
                count = None if None in parts else sum(part or 0 for part in parts)
            if count is None:
                return None
            total *= count
        return total

    def sample(self, rng: random.Random) -> dict[str, Json]:
        """Return one set of parameters at random, nested."""
        return self.build({parameter.path: parameter.sample(rng) for parameter in self.parameters})

    def active(self, flat: Mapping[Key, int | float]) -> list[Parameter]:
        """Return the parameters that count: those at the top, and what the options chosen in `flat` bring."""
        found = []
        waiting = list(reversed(self.children()))
        while waiting:
            parameter = waiting.pop()
            found.append(parameter)
            if parameter.nested:
                option = self._index(parameter, flat)
                waiting.extend(reversed(self.children(parameter.path, option)))
        return found

    def build(self, flat: Mapping[Key, int | float]) -> dict[str, Json]:
        """Return what the trial gets. Inactive parameters in `flat` are ignored; real numbers are made legal.

        Raises: SpaceError if an active parameter is missing or a choice or randint is out of range.
        """
        return self._built(self.children(), flat)

    def _built(self, parameters: tuple[Parameter, ...], flat: Mapping[Key, int | float]) -> dict[str, Json]:
        return {parameter.name: self._value(parameter, flat) for parameter in parameters}

    def _value(self, parameter: Parameter, flat: Mapping[Key, int | float]) -> Json:
        if parameter.kind is ParameterKind.CHOICE:
            option = self._index(parameter, flat)
            if not parameter.nested:
                return copy.deepcopy(parameter.values[option])
            below = self._built(self.children(parameter.path, option), flat)
            return {"_name": parameter.values[option]["_name"], **below}
        raw = self._given(parameter, flat)
        if parameter.kind is ParameterKind.RANDINT:
            return parameter.raw(float(raw) if whole(raw) is None else whole(raw))
        return parameter.legal(raw)

    def _given(self, parameter: Parameter, flat: Mapping[Key, int | float]) -> int | float:
        if parameter.path not in flat:
            raise SpaceError(f"{format_path(parameter.path)} is missing from the parameters")
        return flat[parameter.path]

    def _index(self, parameter: Parameter, flat: Mapping[Key, int | float]) -> int:
        raw = self._given(parameter, flat)
        option = whole(raw)
        if option is None or not 0 <= option < len(parameter.values):
            last = len(parameter.values) - 1
            raise SpaceError(f"{format_path(parameter.path)}: {raw!r} is not the number of an option, 0 to {last}")
        return option

    def flatten(self, parameters: Json) -> Flat:
        """Return the raw values of all active parameters: the inverse of `build`.

        Raises: SpaceError if the parameters are not in this space.
        """
        flat: Flat = {}
        self._flatten(parameters, self.children(), (), flat)
        return flat

    def _flatten(self, given: Json, expected: tuple[Parameter, ...], prefix: Key, flat: Flat) -> None:
        names = {parameter.name for parameter in expected}
        if not isinstance(given, Mapping):
            raise SpaceError(f"{format_path(prefix) or 'the parameters'}: {brief(given)} is not an object")
        extra = [str(name) for name in given if name not in names and not (prefix and name == "_name")]
        missing = [parameter.name for parameter in expected if parameter.name not in given]
        if extra:
            raise SpaceError(f"{format_path((*prefix, extra[0]))} is not in the search space")
        if missing:
            raise SpaceError(f"{format_path((*prefix, missing[0]))} is missing from the parameters")
        for parameter in expected:
            raw = parameter.raw(given[parameter.name])
            flat[parameter.path] = raw
            if parameter.nested:
                below = (*parameter.path, int(raw))
                self._flatten(given[parameter.name], self.children(parameter.path, int(raw)), below, flat)

    def contains(self, parameters: Json) -> str | None:
        """Return None if the parameters are in this space, otherwise why not, in a sentence."""
        try:
            self.flatten(parameters)
        except SpaceError as error:
            return error.message
        return None
