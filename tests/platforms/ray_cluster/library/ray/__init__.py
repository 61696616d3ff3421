"""In the place of Ray's library, for jobs of the stand-in: what the programs of nnilite_ray call.

Actors live in the process of the driver, and each call has its result at once. `kill` leaves a file that the head node
finds. A file `nodes` in the head node's folder says how many nodes there are; without it there are enough. With a file
`hung` no call with a time limit has a result within it.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import exceptions

__all__ = ["exceptions", "get", "get_actor", "get_runtime_context", "init", "kill", "nodes", "remote", "wait"]

_FOLDER = Path(os.environ["FAKE_RAY"])


def init(namespace: str = "", **more: object) -> None:
    assert namespace == "SUPERVISOR_ACTOR_RAY_NAMESPACE" or set(more) == {"logging_level", "log_to_driver"}


def get_actor(name: str) -> str:
    return name


def kill(actor: "str | _Actor") -> None:
    if isinstance(actor, str):
        (_FOLDER / actor).touch()


def nodes() -> list[dict[str, Any]]:
    return [{"NodeID": number, "Alive": number != "gone", "Resources": {"CPU": 8.0}} for number in ("a", "b", "gone")]


class _Context:
    def __init__(self, machine: str) -> None:
        self._machine = machine

    def get_node_id(self) -> str:
        return self._machine


_places: list[str] = []  # of actors, in their order; here all of them live in one process


def get_runtime_context() -> _Context:
    return _Context(_places.pop(0))


class _Method:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.remote = call


class _Actor:
    def __init__(self, made: object) -> None:
        self._made = made

    def __getattr__(self, name: str) -> _Method:
        return _Method(getattr(self._made, name))


class _ActorClass:
    def __init__(self, kind: type) -> None:
        self._kind = kind

    def options(self, **given: object) -> "_ActorClass":
        assert set(given) <= {"scheduling_strategy", "resources", "num_cpus", "num_gpus", "memory"}
        self._place = str(getattr(given["scheduling_strategy"], "node_id", "a"))
        return self

    def remote(self) -> _Actor:
        _places.append(self._place)
        return _Actor(self._kind())


def remote(kind: type) -> _ActorClass:
    return _ActorClass(kind)


def get(found: Any, timeout: float | None = None) -> Any:
    if timeout is not None and (_FOLDER / "hung").exists():
        raise exceptions.GetTimeoutError
    return found


def wait(references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
    [group] = references
    file = _FOLDER / "nodes"
    if not hasattr(group, "bundles") or not file.exists() or int(file.read_text()) >= len(group.bundles):
        return references, []
    threading.Event().wait(timeout)
    return [], references
