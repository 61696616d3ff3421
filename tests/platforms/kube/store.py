"""The objects of a cluster, their versions, and watches of them: what etcd does."""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from platforms.kube.client import Key, now


class Store:
    """All objects. Every change gets a version, and is kept for watches until `compact`."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.objects: dict[Key, dict[tuple[str, str], Any]] = {}
        self._versions = itertools.count(100)
        self._version = 99
        self._history: list[tuple[int, Key, str, Any]] = []
        self._oldest = 0

    @property
    def version(self) -> int:
        return self._version

    def get(self, key: Key, namespace: str, name: str) -> Any | None:
        with self.changed:
            return self.objects.get(key, {}).get((namespace, name))

    def all(self, key: Key, namespace: str = "") -> list[Any]:
        with self.changed:
            found = self.objects.get(key, {}).items()
            return [content for (place, _), content in found if not namespace or place == namespace]

    def create(self, key: Key, namespace: str, content: Any) -> Any:
        """A new object, as stored. Raises: KeyError if the name is taken."""
        with self.changed:
            content = json.loads(json.dumps(content))
            metadata = content["metadata"]
            if (namespace, metadata["name"]) in self.objects.setdefault(key, {}):
                raise KeyError(metadata["name"])
            metadata.update(namespace=namespace, uid=str(uuid.uuid4()), creationTimestamp=now())
            return self._put(key, content, "ADDED")

    def update(self, key: Key, namespace: str, name: str, change: Callable[[Any], None]) -> Any | None:
        """Change a copy of an object and store it; None if it is gone."""
        with self.changed:
            old = self.get(key, namespace, name)
            if old is None:
                return None
            content = json.loads(json.dumps(old))
            change(content)
            return old if content == old else self._put(key, content, "MODIFIED")

    def remove(self, key: Key, namespace: str, name: str) -> None:
        """Take an object away."""
        with self.changed:
            content = self.objects.get(key, {}).pop((namespace, name), None)
            if content is not None:
                content = json.loads(json.dumps(content))
                content["metadata"]["resourceVersion"] = self._next()
                self._note(key, "DELETED", content)

    def compact(self) -> None:
        """Forget all changes so far: older watches get 410."""
        with self.changed:
            self._oldest = self._version
            self._history.clear()

    def watch(
        self, key: Key, namespace: str, version: int, stop: Callable[[], bool]
    ) -> Iterator[tuple[str, Any] | None]:
        """Changes since a version; None when nothing happens for a while. Raises: LookupError if it is too old."""
        while not stop():
            with self.changed:
                if version < self._oldest:
                    raise LookupError(version)
                news = [entry for entry in self._history if entry[0] > version]
                if not news:
                    self.changed.wait(0.5)
            for number, of, kind, content in news:
                version = number
                if of == key and content["metadata"]["namespace"] == namespace:
                    yield kind, content
            if not news:
                yield None

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
        self.changed.notify_all()
