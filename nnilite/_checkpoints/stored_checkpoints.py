"""The checkpoints in the shared storage, which keepers put there (see `nnilite._keeper.saver`).

The storage is never listed: each attempt has a list of its files, and a further attempt starts from the newest list.
What is to go is first named as `gone` in that list, in place of the files; then it is deleted, and its name goes last.
So whatever stops in between, a list has no file that is missing, and no file is left that no list names.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from nnilite._checkpoints.checkpoint_rule import Retention
from nnilite._keeper.storage import Storage, StorageError, check_object_name
from nnilite.errors import ServiceError

_MOST_LIST_BYTES = 64 * 2**20


@dataclass(frozen=True)
class _CheckpointList:
    """An attempt's list. `gone`: names in the storage, and bytes, of files that no longer belong to the checkpoint."""

    saved: float
    files: Mapping[str, dict[str, Any]]
    gone: Mapping[str, int]

    @property
    def objects(self) -> dict[str, int]:
        """The names in the storage of the files, and their bytes; links have none."""
        return {facts["object"]: facts["size"] for facts in self.files.values() if "object" in facts}

    def find_newest_entry(self) -> dict[str, dict[str, Any]]:
        """Return the files of the newest entry, a file or folder, and links to it. A link has no time of its own."""
        times: dict[str, int] = {}
        for path, facts in self.files.items():
            top = path.split("/")[0]
            times[top] = max(times.get(top, 0), facts.get("mtime_ns", 0))
        newest = max(times, key=lambda top: (times[top], top), default="")
        return {path: facts for path, facts in self.files.items() if newest in _list_ways(path, facts)}


def _list_ways(path: str, facts: Mapping[str, Any]) -> set[str]:
    """Return the entries that lead to a file: its own and, for a link that is an entry, the one that it points to."""
    found = {path.split("/")[0]}
    if "link" in facts and "/" not in path:
        found.update(PurePosixPath(facts["link"]).parts[:1])
    return found


class StoredCheckpoints:
    """The checkpoints of an experiment in its shared storage, as a `CheckpointPlace`."""

    def __init__(self, title: str, opened: Callable[[], Storage], scratch: Path) -> None:
        self.title = title
        self._opened = opened
        self._scratch = scratch

    def holding(self, trials: Collection[str]) -> Collection[str]:
        # Only its lists say what a trial has here, and each costs a request.
        return trials

    def look(self, trial: str, attempt: int, retention: Retention) -> StoredDeletion | None:
        if retention is Retention.ALL:
            return None
        with _translate_errors():
            storage = self._opened()
            lists = self._lists(storage, trial, attempt)
        if not lists:
            return None
        newest = max(lists)
        kept = lists[newest].find_newest_entry() if retention is Retention.NEWEST else {}
        staying = {facts["object"] for facts in kept.values() if "object" in facts}
        named = {name: size for known in lists.values() for name, size in {**known.gone, **known.objects}.items()}
        gone = {name: size for name, size in named.items() if name not in staying}
        older = [_name(trial, number) for number in lists if number != newest]
        left = _CheckpointList(lists[newest].saved if kept else 0.0, kept, gone)
        nothing_goes = kept and not gone and not older
        return None if nothing_goes else StoredDeletion(storage, _name(trial, newest), left, older, self._scratch)

    def size(self, trial: str, attempt: int) -> int:
        with _translate_errors():
            lists = self._lists(self._opened(), trial, attempt)
        return sum(
            {name: size for known in lists.values() for name, size in {**known.gone, **known.objects}.items()}.values()
        )

    def _lists(self, storage: Storage, trial: str, attempt: int) -> dict[int, _CheckpointList]:
        found: dict[int, _CheckpointList] = {}
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            path = Path(folder, "list")
            for number in range(attempt, -1, -1):
                if storage.get(_name(trial, number), str(path)):
                    found[number] = _read(path, trial, _name(trial, number))
        return found


@dataclass(frozen=True)
class StoredDeletion:
    """What is to be deleted from the storage, as `left.gone` names it, and earlier lists that are then obsolete."""

    storage: Storage
    newest: str
    left: _CheckpointList
    older: Collection[str]
    scratch: Path

    def set_aside(self) -> None:
        self._write({**_plain(self.left), "gone": dict(self.left.gone)})

    def delete(self) -> None:
        with _translate_errors():
            for name in (*self.left.gone, *self.older):
                self.storage.delete(name)
            if not self.left.files:
                self.storage.delete(self.newest)
                return
        self._write(_plain(self.left))

    def _write(self, content: dict[str, Any]) -> None:
        with _translate_errors(), tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            path = Path(folder, "list")
            path.write_text(json.dumps(content), "ascii")
            self.storage.put(self.newest, str(path))


def _plain(listed: _CheckpointList) -> dict[str, Any]:
    return {"saved": listed.saved, "files": dict(listed.files)}


def _name(trial: str, number: int) -> str:
    return f"checkpoints/{trial}/{number}.json"


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise a ServiceError in place of a StorageError."""
    try:
        yield
    except StorageError as error:
        raise ServiceError(str(error)) from error


def _read(path: Path, trial: str, name: str) -> _CheckpointList:
    """Check a list, which comes from a worker. Raises: ValueError."""
    if path.stat().st_size > _MOST_LIST_BYTES:
        raise ValueError(f"the list {name} is larger than {_MOST_LIST_BYTES >> 20} MiB; delete it by hand")
    try:
        known = json.loads(path.read_bytes())
        gone = {check_object_name(trial, one): int(size) for one, size in known.get("gone", {}).items()}
        files = {_inside(inner): _facts(trial, facts) for inner, facts in known["files"].items()}
        return _CheckpointList(float(known.get("saved") or 0), files, gone)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"the list {name} is damaged ({error}); delete it by hand") from error


def _inside(path: str) -> str:
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"it names {path!r:.200}, outside of the folder for checkpoints")
    return path


def _facts(trial: str, facts: dict[str, Any]) -> dict[str, Any]:
    if "link" in facts:
        return {"link": str(facts["link"])}
    size, changed = int(facts["size"]), int(facts["mtime_ns"])
    return {"object": check_object_name(trial, facts["object"]), "size": max(size, 0), "mtime_ns": changed}
