"""What is kept of checkpoints in the shared storage, whatever fails or stops in between."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnilite._checkpoints.checkpoint_rule import Retention
from nnilite._checkpoints.stored_checkpoints import StoredCheckpoints
from nnilite._keeper.storage import Storage, StorageError
from nnilite.errors import ServiceError


class Kept(Storage):
    """A storage in memory, which stops after some more requests."""

    title = "a storage"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.left: int | None = None

    def _asked(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise StorageError("it does not answer", away=True)

    def put(self, name: str, path: str, progress: object = None) -> None:
        self._asked()
        self.files[name] = Path(path).read_bytes()

    def get(self, name: str, path: str, progress: object = None) -> bool:
        self._asked()
        if name in self.files:
            Path(path).write_bytes(self.files[name])
        return name in self.files

    def delete(self, name: str) -> None:
        self._asked()
        self.files.pop(name, None)

    def save(self, attempt: int, files: dict[str, tuple[int, int]], **more: Any) -> None:
        """Write an attempt's list, and the files that it names: path to (the attempt that has saved it, time)."""
        entries = {}
        for path, (by, time) in files.items():
            name = f"checkpoints/t/{by}/{time}/{path}"
            self.files[name] = b"x" * 10
            entries[path] = {"object": name, "size": 10, "mtime_ns": time}
        self.write(attempt, {"saved": 1.0, "files": {**entries, **more}})

    def write(self, attempt: int, content: object) -> None:
        self.files[f"checkpoints/t/{attempt}.json"] = json.dumps(content).encode()

    def found(self) -> dict[str, bytes]:
        """What the next attempt finds; it fails if a file is missing."""
        lists = [n for n in range(9) if f"checkpoints/t/{n}.json" in self.files]
        known = json.loads(self.files[f"checkpoints/t/{lists[-1]}.json"])["files"] if lists else {}
        return {path: self.files[facts["object"]] for path, facts in known.items()}


def tidied(storage: Kept, scratch: Path, retention: Retention, attempt: int = 3) -> None:
    place = StoredCheckpoints("a storage", lambda: storage, scratch)
    deletion = place.look("t", attempt, retention)
    if deletion is not None:
        deletion.set_aside()
        deletion.delete()


PATHS = st.sampled_from(["a", "b/x", "b/y", "c"])
CHECKPOINT = st.dictionaries(PATHS, st.integers(1, 9), min_size=1)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(CHECKPOINT, min_size=1, max_size=4),
    st.lists(st.integers(0, 12), max_size=6),
    st.sampled_from([Retention.NEWEST, Retention.NOTHING]),
)
def test_whatever_stops_it_the_next_attempt_finds_all_or_what_stays(
    saved: list[dict[str, int]], stops: list[int], retention: Retention
) -> None:
    storage = Kept()
    known: dict[str, tuple[int, int]] = {}
    for attempt, checkpoint in enumerate(saved):
        # Files that have not changed since the attempt before stay where that one has put them.
        known = {path: known.get(path) or (attempt, time) for path, time in checkpoint.items()}
        storage.save(attempt, known)
    before = storage.found()
    newest = max((time, path.split("/")[0]) for path, (_, time) in known.items())[1]
    wanted = {path for path in known if retention is Retention.NEWEST and path.split("/")[0] == newest}
    with tempfile.TemporaryDirectory() as scratch:
        for stop in stops:
            storage.left = stop
            try:
                tidied(storage, Path(scratch), retention)
            except ServiceError:
                assert set(storage.found()) in (set(before), wanted)
        storage.left = None
        tidied(storage, Path(scratch), retention)
        assert set(storage.found()) == wanted
        assert len(storage.files) == (len(wanted) + 1 if wanted else 0), "something is left that nobody needs"
        assert StoredCheckpoints("", lambda: storage, Path(scratch)).look("t", 3, retention) is None
        assert not list(Path(scratch).iterdir())


@pytest.mark.parametrize(
    "name",
    [
        "code/x",
        "checkpoints/other/0/1/a",
        "checkpoints/t/0.json",
        "checkpoints/t/0/../../../a",
        "checkpoints/t/0//a",
        7,
    ],
)
def test_a_list_that_names_anything_else_deletes_nothing(tmp_path: Path, name: object) -> None:
    storage = Kept()
    storage.save(0, {"a": (0, 1)}, b={"object": name, "size": 1, "mtime_ns": 1})
    before = dict(storage.files)
    with pytest.raises(ValueError, match=r"not a checkpoint file of trial t.*delete it by hand"):
        tidied(storage, tmp_path, Retention.NOTHING)
    assert storage.files == before


@pytest.mark.parametrize("content", [[], {"files": []}, {"files": {"../a": {"link": "x"}}}, {"files": {"a": {}}}])
def test_a_damaged_list_deletes_nothing(tmp_path: Path, content: object) -> None:
    storage = Kept()
    storage.save(0, {"a": (0, 1)})
    storage.write(1, content)
    before = dict(storage.files)
    with pytest.raises(ValueError, match=r"checkpoints/t/1.json is damaged"):
        tidied(storage, tmp_path, Retention.NOTHING)
    assert storage.files == before


def test_links_to_the_newest_entry_stay(tmp_path: Path) -> None:
    storage = Kept()
    storage.save(0, {"a": (0, 1), "b/x": (0, 2)}, latest={"link": "b"}, first={"link": "a"})
    tidied(storage, tmp_path, Retention.NEWEST)
    assert set(json.loads(storage.files["checkpoints/t/0.json"])["files"]) == {"b/x", "latest"}


def test_each_file_counts_once_for_the_size(tmp_path: Path) -> None:
    storage = Kept()
    storage.save(0, {"a": (0, 1), "b/x": (0, 2)})
    storage.save(1, {"a": (0, 1), "b/x": (1, 3)})
    assert StoredCheckpoints("", lambda: storage, tmp_path).size("t", 1) == 30
