"""The objects of a cluster: versions, watches, owners. What etcd, the registry and the garbage collector do."""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

Key = tuple[str, str, str]  # group, version, plural


class Store:
    """All objects. Every change gets a version, and is kept for watches until `compact`."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.objects: dict[Key, dict[tuple[str, str], Any]] = {}
        self._versions = itertools.count(100)
        self._version = 99
        self._history: list[tuple[int, Key, str, Any]] = []
        self._oldest = 0
        self.closed = False

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

    def delete(self, key: Key, namespace: str, name: str, policy: str = "Background") -> None:
        """What a DELETE does: pods end gracefully, owners may wait for what they own."""
        with self.changed:
            if key[2] == "pods":
                self.update(key, namespace, name, _deleted)
            elif policy == "Foreground":
                self.update(key, namespace, name, lambda content: _deleted(content, "foregroundDeletion"))
            else:
                self.remove(key, namespace, name)
            self.collect()

    def collect(self) -> None:
        """The garbage collector."""
        with self.changed:
            everything = [(key, content) for key, found in self.objects.items() for content in found.values()]
            alive = {content["metadata"]["uid"]: content for _, content in everything}
            owned = set()
            for key, content in everything:
                owners = [entry["uid"] for entry in content["metadata"].get("ownerReferences") or []]
                going = [uid for uid in owners if _waits(alive.get(uid))]
                owned.update(uid for uid in owners if key[2] != "secrets")
                if owners and (going or not any(uid in alive for uid in owners)) and not _waits(content):
                    self._collect_one(key, content)
            for key, content in everything:
                if _waits(content) and content["metadata"]["uid"] not in owned and key[2] != "pods":
                    self.remove(key, content["metadata"]["namespace"], content["metadata"]["name"])

    def _collect_one(self, key: Key, content: Any) -> None:
        metadata = content["metadata"]
        if not (key[2] == "pods" and metadata.get("deletionTimestamp")):
            self.delete(key, metadata["namespace"], metadata["name"])

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


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _waits(content: Any) -> bool:
    return content is not None and bool(content["metadata"].get("deletionTimestamp"))


def _deleted(content: Any, finalizer: str = "") -> None:
    content["metadata"].setdefault("deletionTimestamp", now())
    if finalizer:
        content["metadata"]["finalizers"] = [finalizer]
