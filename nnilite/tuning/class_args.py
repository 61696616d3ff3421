"""Checks of `classArgs`: the arguments that users give to tuners and assessors.

`construct` checks the names against the constructor, so that a misspelt one is found; the constructors check the
values, with `number` and `one_of`. Every fault is a ConfigError whose field is `classArgs.<name>`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from nnilite.errors import ConfigError, Place

__all__ = ["check_names", "construct", "default_of", "number", "one_of", "whole_number", "without_effect"]

_Built = TypeVar("_Built")


def construct(cls: type[_Built], class_args: Mapping[str, Any] | None = None) -> _Built:
    """Make an instance with the user's arguments.

    A class may name arguments that it once had: `ignored_arguments = {"old": "why"}`. They are accepted with a warning.

    Raises: ConfigError if an argument is unknown, missing or out of range.

        tuner = construct(TPETuner, {"optimize_mode": "maximize"})
    """
    given = dict(class_args or {})
    for name, reason in getattr(cls, "ignored_arguments", {}).items():
        if name in given:
            without_effect(name, given.pop(name), None, reason)
    check_names(cls, given)
    return cls(**given)


def check_names(cls: type, class_args: Mapping[str, Any]) -> None:
    """Compare the names of the arguments with the constructor. Raises: ConfigError."""
    known = {k: p for k, p in inspect.signature(cls).parameters.items() if p.kind not in _STARRED}
    if not _takes_any(cls):
        for name in class_args:
            if name not in known:
                raise _fault(name, f"{cls.__name__} has no such argument{_hint(name, list(known))}")
    for name, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and name not in class_args:
            raise _fault(name, f"{cls.__name__} needs this argument")


_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _takes_any(cls: type) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(cls).parameters.values())


def _hint(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; it takes {', '.join(known)}" if known else "; it takes none"


def _fault(name: str, message: str) -> ConfigError:
    return ConfigError(message, Place(field=f"classArgs.{name}"))


def number(name: str, value: Any, low: float | None = None, high: float | None = None) -> float:
    """Return `value` as a float if it is a finite number in [low, high]. Raises: ConfigError."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not _within(low, value, high):
        raise _fault(name, f"must be a number{_range(low, high)}, not {value!r}{_unquote(value)}")
    return float(value)


def whole_number(name: str, value: Any, low: int | None = None, high: int | None = None) -> int:
    """Return `value` if it is an integer in [low, high]. Raises: ConfigError."""
    if not isinstance(value, int) or isinstance(value, bool) or not _within(low, value, high):
        raise _fault(name, f"must be a whole number{_range(low, high)}, not {value!r}{_unquote(value, whole=True)}")
    return value


def _unquote(value: Any, *, whole: bool = False) -> str:
    # Imported late: `from nnilite import Search` needs no units, and they take half as long as a start of Python.
    from nnilite.units import cure_for_number

    return "" if isinstance(value, float) and not whole else cure_for_number(value, whole=whole)


def one_of(name: str, value: Any, choices: Sequence[Any]) -> Any:
    """Return `value` if it is one of the choices. Raises: ConfigError."""
    if any(value is choice or (type(value) is type(choice) and value == choice) for choice in choices):
        return value
    names = ", ".join(repr(choice) for choice in choices)
    raise _fault(name, f"must be one of {names}, not {value!r}")


def default_of(plugin: type, name: str) -> Any:
    """Return the constructor's default for an argument; None if there is none."""
    argument = inspect.signature(plugin).parameters.get(name)
    return None if argument is None or argument.default is argument.empty else argument.default


def without_effect(name: str, value: Any, default: Any, reason: str) -> None:
    """Warn of a value that NNI heeds and we do not, unless it is the default."""
    if value != default:
        import logging

        logging.getLogger(__name__).warning("classArgs.%s: %r has no effect: %s", name, value, reason)


def _within(low: float | None, value: float, high: float | None) -> bool:
    return abs(value) <= sys.float_info.max and (low is None or low <= value) and (high is None or value <= high)


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" between {low:g} and {high:g}"
    if low is not None:
        return f" of at least {low:g}"
    return f" of at most {high:g}" if high is not None else ""
