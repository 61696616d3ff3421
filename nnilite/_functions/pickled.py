"""The function as bytes, what they need on a worker, and which part of a function cannot be sent."""

from __future__ import annotations

import functools
import inspect
import io
import pickletools
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from nnilite._search.function_arguments import code_of, name_of, unwrap
from nnilite.errors import Conflict

MOST_BYTES = 16 * 1024**2
"""The limit for the function with everything that travels in it; larger data belongs into files."""

MAIN_MODULES = ("__main__", "__mp_main__")
"""The names of the module of the script: the second is that in processes of multiprocessing that did not fork."""

_PROTOCOL = 5  # the highest of Python 3.8
_MOST_SOURCE_BYTES = 200_000
_CURE_OF_SIZE = (
    "Let the function read large data itself: from a file in the code directory, or from storage that all workers reach"
)


@dataclass(frozen=True)
class PickledFunction:
    """A function that can be sent.

    by_value   whether it holds compiled code, which only the same minor version of Python can read
    modules    the names of the modules that it needs, those of its own module included
    sources    lines of source code that only this program has, by the name of their file
    file       where its code is; "" if it is not in a file
    """

    data: bytes
    by_value: bool
    modules: frozenset[str]
    sources: Mapping[str, str]
    file: str


def pickle_function(function: Callable[..., Any]) -> PickledFunction:
    """Return the function as bytes. Raises: Conflict with the part that cannot be sent, or is too large."""
    sink = _LimitedSink(MOST_BYTES)
    try:
        _dump(function, sink)
    except _TooLargeError:
        raise Conflict(_too_large(function)) from None
    except Exception as error:  # whatever `__reduce__` of the user's objects raises
        if _problem_with(function, MOST_BYTES) is None:
            raise  # it came from a signal handler of the program, such as one for a time limit
        raise Conflict(_not_sent(function, error)) from error
    data = sink.getvalue()
    names = _names_in(data)
    code = code_of(function)
    file = code.co_filename if code is not None else ""
    modules = frozenset(names | _modules_beside(function))
    by_value = any(name.partition(".")[0] == "cloudpickle" for name in names)
    return PickledFunction(data, by_value, modules, _sources(file), file)


def packages_of(modules: frozenset[str]) -> dict[str, str]:
    """Return the installed distributions of these modules, with their versions."""
    by_module = metadata.packages_distributions()
    tops = {name.partition(".")[0] for name in modules} - {"nnilite", "cloudpickle"}
    found = {name for top in tops if top in sys.modules for name in by_module.get(top, ())}
    return {name: metadata.version(name) for name in sorted(found)}


class _TooLargeError(Exception):
    """More bytes were written than allowed."""


class _LimitedSink(io.BytesIO):
    """Keeps what is written, and stops a pickle early that would fill the memory."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > self._limit:
            raise _TooLargeError
        return super().write(data)


def _dump(value: Any, sink: io.BytesIO) -> None:
    from cloudpickle import CloudPickler, register_pickle_by_value

    # CloudPickler itself knows the first name only.
    spawned = sys.modules.get(MAIN_MODULES[1])
    if getattr(spawned, "__name__", "") == MAIN_MODULES[1]:
        register_pickle_by_value(spawned)

    def with_file(code: CodeType) -> tuple[Any, ...]:
        make, arguments = CloudPickler.dispatch_table[CodeType](code)
        return make, tuple(code.co_filename if one == "<dynamic-code>" else one for one in arguments)

    class Pickler(CloudPickler):  # type: ignore[misc]
        """Keeps the names of source files, which tracebacks need and CloudPickler leaves out."""

        dispatch_table = ChainMap({CodeType: with_file}, CloudPickler.dispatch_table)

    Pickler(sink, protocol=_PROTOCOL).dump(value)


def _parts(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield what travels with a function, each part with its name in words."""
    if isinstance(function, functools.partial):
        yield from ((f"its bound argument {number + 1}", value) for number, value in enumerate(function.args))
        yield from ((f"its bound argument {name!r}", value) for name, value in function.keywords.items())
        yield from _parts(function.func)
    elif inspect.ismethod(function):
        yield f"the {type(function.__self__).__name__} that it is a method of", function.__self__
        yield from _parts(function.__func__)
    elif isinstance(function, FunctionType):
        found = inspect.getclosurevars(function)
        yield from ((f"the variable {name!r} around it", value) for name, value in found.nonlocals.items())
        yield from ((f"the global variable {name!r}", value) for name, value in found.globals.items())
        defaults = [(one.name, one.default) for one in inspect.signature(function).parameters.values()]
        yield from ((f"the default of its argument {name!r}", value) for name, value in defaults)
    else:
        yield from ((f"its attribute {name!r}", value) for name, value in getattr(function, "__dict__", {}).items())


def _problem_with(value: Any, limit: int) -> Exception | None:
    try:
        _dump(value, _LimitedSink(limit))
    except Exception as error:  # noqa: BLE001  whatever `__reduce__` of the user's objects raises
        return error
    return None


def _too_large(function: Callable[..., Any]) -> str:
    # A part of a third is not the only one, but the first that is worth a look.
    for limit in (MOST_BYTES, MOST_BYTES // 3):
        for words, value in _parts(function):
            if isinstance(_problem_with(value, limit), _TooLargeError):
                size = getattr(value, "nbytes", None)
                size_text = f"{size / 1024**2:,.0f} MB" if isinstance(size, int) else f"above {limit / 1024**2:.0f} MB"
                return (
                    f"{name_of(function)} is too large to be sent to trials, because of {words} "
                    f"({type(value).__name__}, {size_text}); the limit is {MOST_BYTES >> 20} MB. {_CURE_OF_SIZE}."
                )
    return f"{name_of(function)} is too large to be sent to trials: above {MOST_BYTES >> 20} MB. {_CURE_OF_SIZE}."


def _not_sent(function: Callable[..., Any], error: Exception) -> str:
    for words, value in _parts(function):
        problem = _problem_with(value, MOST_BYTES)
        if problem is not None and not isinstance(problem, _TooLargeError):
            return (
                f"{name_of(function)} cannot be sent to trials, because of {words} ({type(value).__name__}): "
                f"{problem}. Create it inside of the function."
            )
    return (
        f"{name_of(function)} cannot be sent to trials: {error}. Create what it uses inside of the function, or define "
        "it at the top level of a module."
    )


def _names_in(data: bytes) -> set[str]:
    """Return the names of modules that a pickle may import."""
    found: set[str] = set()
    for operation, argument, _ in pickletools.genops(data):
        if operation.name == "GLOBAL":
            found.add(str(argument).partition(" ")[0])
        elif isinstance(argument, str) and len(argument) < 200 and _is_module(argument):
            found.add(argument)
    return found


def _is_module(name: str) -> bool:
    return name in sys.modules and all(part.isidentifier() for part in name.split("."))


def _modules_beside(function: Callable[..., Any]) -> set[str]:
    """Return the modules that the function's own module uses by name, such as `np`."""
    inner = unwrap(function)
    module = sys.modules.get(getattr(inner, "__module__", None) or "")
    if module is None or module.__name__ in MAIN_MODULES:
        return set()
    beside = {value.__name__ for value in vars(module).values() if isinstance(value, ModuleType)}
    return beside | {module.__name__}


def _sources(file: str) -> dict[str, str]:
    """Return the source code of a notebook's cell, or of a function that was typed in."""
    import linecache

    if not file or Path(file).is_file():
        return {}
    text = "".join(linecache.getlines(file))
    return {file: text} if text and len(text) <= _MOST_SOURCE_BYTES else {}
