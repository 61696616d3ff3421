"""Chooses the port of a manager to which none was given, and names the owner of a port that is taken."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from nnilite._experiments import registry
from nnilite._experiments.address import Address
from nnilite._experiments.manager_state import find_manager_state
from nnilite._rest.port_binding import bind
from nnilite.errors import Conflict

T = TypeVar("T")

FIRST = 8080
_TRIED = 100  # ports counted up from the first one; then any free one is taken


def listening(listen: Callable[[int], T], asked: int | None, directory: Path, first: int = FIRST) -> T:
    """Return `listen(port)` for the requested port or, if none was requested, for the first free one.

    What was served before gets its former port again if that is free: workers and open pages know it. Raises: Conflict,
    with the experiment that has the port, if the requested one is taken; what `listen` does.
    """
    if asked is not None:
        try:
            return listen(asked)
        except Conflict as error:
            raise _explain_by_whom(error, asked) from error
    for port in _candidates(directory, first):
        try:
            return listen(port)
        except Conflict:
            continue
    return listen(0)


@contextlib.contextmanager
def placeholder_listener(directory: Path, address: Address) -> Iterator[None]:
    """Listen where a manager at this address would, and answer nothing: services look whether it listens.

    Raises: ConfigError if it could not.
    """
    port = address.port
    sockets = listening(partial(bind, [address.host]), None, directory, first=port)
    try:
        address.port = sockets[0].getsockname()[1]
        yield
    finally:
        address.port = port
        for one in sockets:
            one.close()


def _candidates(directory: Path, first: int) -> Iterator[int]:
    former = find_manager_state(directory).port
    if former:
        yield former
    yield from (port for port in range(first, first + _TRIED) if port != former)


def _explain_by_whom(error: Conflict, port: int) -> Conflict:
    for entry in registry.entries():
        if entry.alive and entry.port == port:
            name = f" ({entry.name})" if entry.name else ""
            cure = "leave --port out for the next free port, or choose another"
            return Conflict(f"port {port} is taken by your experiment {entry.id}{name}; {cure}")
    return error
