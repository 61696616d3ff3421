"""`dataclass`, as that of Python, for classes that cost a third at their import.

Python's own compiles the source of up to six methods for each class. With 200 classes, that was a quarter of what the
start of `nnictl` and a manager took. Here equality, hash, text and the refusal of changes are functions that look up
the class's fields, and `__init__` is compiled at the first object. `fields`, `replace`, `asdict` and type checkers see
a dataclass like any other.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, **options):
        """Make a class a dataclass. With options other than frozen, eq and kw_only it is Python's own."""
        return (lambda one: _make(one, **options)) if cls is None else _make(cls, **options)


__all__ = ["dataclass"]

_OWN = frozenset(("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"))
_UNSET: Any = object()


def _make(cls: type, *, frozen: bool = False, eq: bool = True, kw_only: bool = False, **others: Any) -> type:
    if others or _OWN & vars(cls).keys() or any(map(dataclasses.is_dataclass, cls.__mro__[1:])):
        return dataclasses.dataclass(frozen=frozen, eq=eq, kw_only=kw_only, **others)(cls)
    if cls.__doc__ is None:  # otherwise the signature is taken apart for it, which takes long
        cls.__doc__ = cls.__name__
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    found = dataclasses.fields(cls)
    methods = [_init(cls, found, frozen), _repr([one.name for one in found if one.repr])]
    compared = _values([one.name for one in found if one.compare])
    methods += [_eq(compared)] if eq else []
    methods += [_hash(compared)] if eq and frozen else []
    methods += _refusals(cls, frozenset(one.name for one in found)) if frozen else []
    for method in methods:
        method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
        setattr(cls, method.__name__, method)
    if eq and not frozen:
        cls.__hash__ = None  # type: ignore[assignment]
    _describe(cls, {"init": True, "repr": True, "eq": eq, "frozen": frozen})
    return cls


def _describe(cls: Any, options: dict[str, bool]) -> None:
    """Tell Python how the class was made, since it lets no frozen class be derived from one that is not."""
    for name, value in options.items():
        setattr(cls.__dataclass_params__, name, value)


# ------------------------------------------------------------ __init__


def _init(cls: Any, found: Sequence[dataclasses.Field[Any]], frozen: bool) -> Callable[..., Any]:
    def __init__(self: Any, *values: Any, **named: Any) -> None:
        cls.__init__ = written = _write_init(cls, found, frozen)
        written(self, *values, **named)

    return __init__


def _write_init(cls: Any, found: Sequence[dataclasses.Field[Any]], frozen: bool) -> Callable[..., Any]:
    """Return the `__init__` that Python's own dataclass would have."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_UNSET": _UNSET}
    assign = " _set(self, {0!r}, {1})" if frozen else " self.{0} = {1}"
    positional: list[str] = []
    keyword: list[str] = []
    lines: list[str] = []
    for one in found:
        parameter, value = _parameter(one, names)
        if one.init:
            (keyword if one.kw_only else positional).append(parameter)
        if value:
            lines.append(assign.format(one.name, value))
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    words = ", ".join(["self", *positional, *(["*", *keyword] if keyword else [])])
    exec(f"def __init__({words}):\n" + "\n".join(lines or [" pass"]), names)
    written: Callable[..., Any] = names["__init__"]
    written.__qualname__ = f"{cls.__qualname__}.__init__"
    return written


def _parameter(one: dataclasses.Field[Any], names: dict[str, Any]) -> tuple[str, str]:
    """Return a field's parameter and the value that it is set to, and add to `names` what these need."""
    name = one.name
    if one.default is not dataclasses.MISSING:
        names[f"_default_{name}"] = one.default
        # Without a parameter, the value of the class is that of each object.
        return f"{name}=_default_{name}", name if one.init else ""
    if one.default_factory is not dataclasses.MISSING:
        names[f"_make_{name}"] = one.default_factory
        made = f"_make_{name}()"
        return f"{name}=_UNSET", f"{made} if {name} is _UNSET else {name}" if one.init else made
    return name, name if one.init else ""


# ------------------------------------------------------------ the other methods


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gets the values of these fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


def _repr(names: Sequence[str]) -> Callable[..., Any]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _eq(values: Callable[[Any], Any]) -> Callable[..., Any]:
    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], Any]) -> Callable[..., Any]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _refusals(cls: Any, names: Iterable[str]) -> list[Callable[..., Any]]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return [__setattr__, __delattr__]
