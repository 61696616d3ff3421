"""The objects of a cluster, their versions, and watches of them: what etcd does.

A change wakes only the watches of its kind, and those that nothing happens to sleep for long: some thirty threads that
all wake at once spend a busy machine's time on handing the interpreter to each other.
"""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from platforms.kube.client import Key, now

_QUIET_S = 5.0


class Store:
    """All objects. Every change gets a version, and is kept for watches until `compact`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.objects: dict[Key, dict[tuple[str, str], Any]] = {}
        self._versions = itertools.count(100)
        self._version = 99
        self._history: list[tuple[int, Key, str, Any]] = []
        self._oldest = 0
        self._changed: dict[Key, threading.Condition] = {}

    @property
    def version(self) -> int:
        return self._version

    def get(self, key: Key, namespace: str, name: str) -> Any | None:
        with self.lock:
            return self.objects.get(key, {}).get((namespace, name))

    def all(self, key: Key, namespace: str = "") -> list[Any]:
        with self.lock:
            found = self.objects.get(key, {}).items()
            return [content for (place, _), content in found if not namespace or place == namespace]

    def create(self, key: Key, namespace: str, content: Any) -> Any:
        """A new object, as stored. Raises: KeyError if the name is taken."""
        with self.lock:
            content = json.loads(json.dumps(content))
            metadata = content["metadata"]
            if (namespace, metadata["name"]) in self.objects.setdefault(key, {}):
                raise KeyError(metadata["name"])
            metadata.update(namespace=namespace, uid=str(uuid.uuid4()), creationTimestamp=now())
            return self._put(key, content, "ADDED")

    def update(self, key: Key, namespace: str, name: str, change: Callable[[Any], None]) -> Any | None:
        """Change a copy of an object and store it; None if it is gone."""
        with self.lock:
            old = self.get(key, namespace, name)
            if old is None:
                return None
            content = json.loads(json.dumps(old))
            change(content)
            return old if content == old else self._put(key, content, "MODIFIED")

    def remove(self, key: Key, namespace: str, name: str) -> None:
        """Take an object away."""
        with self.lock:
            content = self.objects.get(key, {}).pop((namespace, name), None)
            if content is not None:
                content = json.loads(json.dumps(content))
                content["metadata"]["resourceVersion"] = self._next()
                self._note(key, "DELETED", content)

    def compact(self) -> None:
        """Forget all changes so far: all watches get 410, also those that have heard of the last one."""
        with self.lock:
            self._oldest = int(self._next())
            self._history.clear()
            self.wake()

    def wake(self) -> None:
        """Have all watches look whether they are to stop."""
        with self.lock:
            for changed in self._changed.values():
                changed.notify_all()

    def watch(self, key: Key, namespace: str, version: int, stop: Callable[[], bool]) -> Iterator[tuple[str, Any]]:
        """Changes since a version; bookmarks while nothing happens. Raises: LookupError if it is too old."""
        while not stop():
            with self.lock:
                if version < self._oldest:
                    raise LookupError(version)
                news = [
                    (kind, content)
                    for number, of, kind, content in self._history
                    if number > version and of == key and content["metadata"]["namespace"] == namespace
                ]
                version = self._version
                if not news and self._condition(key).wait(_QUIET_S):
                    continue
            yield from news or [("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})]

    def _condition(self, key: Key) -> threading.Condition:
        return self._changed.setdefault(key, threading.Condition(self.lock))

    def _put(self, key: Key, content: Any, kind: str) -> Any:
        metadata = content["metadata"]
        metadata["resourceVersion"] = self._next()
        self.objects[key][metadata["namespace"], metadata["name"]] = content
        self._note(key, kind, content)
        return content

    def _next(self) -> str:
        self._version = next(self._versions)
        return str(self._version)

    def _note(self, key: Key, kind: str, content: Any) -> None:
        self._history.append((self._version, key, kind, content))
        self._condition(key).notify_all()
