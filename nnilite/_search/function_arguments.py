"""The function that a search calls: what of it is called in the end, and with how many arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Container
from types import CodeType, FunctionType
from typing import Any

from nnilite.errors import Conflict

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def unwrap(function: Callable[..., Any]) -> Any:
    """Return the function that is called in the end: without `partial`, `functools.wraps` and bound objects."""
    inner: Any = function
    for _ in range(100):
        if isinstance(inner, functools.partial):
            inner = inner.func
        elif hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        elif inspect.ismethod(inner):
            inner = inner.__func__
        else:
            break
    if not isinstance(inner, (FunctionType, type)) and not inspect.isbuiltin(inner):
        inner = vars(type(inner)).get("__call__", inner)
    return inner


def code_of(function: Callable[..., Any]) -> CodeType | None:
    found = getattr(unwrap(function), "__code__", None)
    return found if isinstance(found, CodeType) else None


def name_of(function: Callable[..., Any]) -> str:
    inner = unwrap(function)
    return str(getattr(inner, "__qualname__", type(inner).__name__))


class NotAFunction(Conflict):
    """What is to be called cannot be."""


def takes_report(function: Any, searched: Container[object] = ()) -> bool:
    """Return whether the function takes `report`, too. `searched` has the names of the parameters that are searched.

    Raises: NotAFunction, with what would be right.
    """
    _refuse_single_parameters(function, searched)
    return count_arguments(function) >= 2


def _refuse_single_parameters(function: Any, searched: Container[object]) -> None:
    """Refuse a function that takes each parameter by itself: all come as one dict."""
    try:
        taken = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return
    needed = [one.name for one in taken if one.default is one.empty and one.kind in _BY_NAME and one.name != "report"]
    none_by_place = bool(taken) and all(one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD) for one in taken)
    if none_by_place or any(name in searched for name in needed[1:]):
        raise NotAFunction(
            f"{name_of(function)}{inspect.signature(function)} takes the parameters one by one, but they come as one "
            f"dict: give lambda parameters: {name_of(function)}(**parameters)."
        )


def count_arguments(function: Any) -> int:
    if not callable(function):
        raise NotAFunction(f"an objective must be a function, not {function!r:.100} ({type(function).__name__}).")
    name = name_of(function)
    inner = unwrap(function)
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise NotAFunction(
            f"{name} is `async`, and nothing would await it. Give a plain function that calls asyncio.run({name}(...))."
        )
    if inspect.isgeneratorfunction(inner):
        raise NotAFunction(f"{name} has a `yield`, so a call of it returns a generator. Return the result instead.")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions have no signature
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    places = [one for one in signature.parameters.values() if one.kind in kinds]
    count = sum(one.default is one.empty or one.name == "report" for one in places)
    for given in range(1, 3):
        try:
            signature.bind(*range(given))
        except TypeError:
            continue
        return 2 if count >= 2 else 1
    raise NotAFunction(
        f"{name}{signature} cannot be called with the parameters, or with the parameters and `report`. Take one or "
        "two arguments, and bind the others by functools.partial."
    )
