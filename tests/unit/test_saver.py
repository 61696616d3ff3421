"""Checkpoints that change while they are copied to a shared storage."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from nnilite._keeper import patient_storage
from nnilite._keeper.code_fetch import fetch_code
from nnilite._keeper.patient_storage import PatientStorage
from nnilite._keeper.saver import Saver

LIST = "checkpoints/t/0.json"


class Slow:
    """A storage in which something happens before each checkpoint is read."""

    title = "a storage"

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.before_get: dict[str, Callable[[], None]] = {}

    def put(self, name: str, path: str, moved: object) -> None:
        if name != LIST:
            self.meanwhile()
        self.kept[name] = Path(path).read_bytes()

    def get(self, name: str, path: str, moved: object) -> bool:
        self.before_get.pop(name, lambda: None)()
        if name in self.kept:
            Path(path).write_bytes(self.kept[name])
        return name in self.kept

    def delete(self, name: str) -> None:
        self.kept.pop(name, None)

    def checkpoint(self) -> dict[str, bytes] | None:
        """What the list names."""
        if LIST not in self.kept:
            return None
        return {path: self.kept[facts["object"]] for path, facts in json.loads(self.kept[LIST])["files"].items()}


@pytest.fixture
def storage() -> Slow:
    return Slow()


def make_saver(folder: Path, storage: Slow, attempt: int = 0, checkpoint_dir: str | None = None) -> Saver:
    (folder / "inner").mkdir(parents=True, exist_ok=True)
    spec = SimpleNamespace(
        storage={"parts": ["checkpoints"]},
        checkpoint_dir=checkpoint_dir,
        directory=str(folder),
        trial="t",
        attempt=attempt,
    )
    saver = Saver(spec, SimpleNamespace(inner=str(folder / "inner"), metrics=str(folder / "inner" / "metrics")))
    saver._shared._storage = storage
    return saver


@pytest.fixture
def saver(tmp_path: Path, storage: Slow) -> Saver:
    (tmp_path / "checkpoint").mkdir()
    return make_saver(tmp_path, storage)


def test_a_checkpoint_that_is_replaced_faster_than_it_is_copied_is_saved(
    saver: Saver, storage: Slow, tmp_path: Path
) -> None:
    step = tmp_path / "checkpoint" / "step"
    step.write_text("1")

    def replace() -> None:
        step.with_name("draft").write_text("12")
        step.with_name("draft").rename(step)

    storage.meanwhile = replace
    saver._save_checkpoints(lambda: True, 0.0)
    assert storage.checkpoint() == {"step": b"1"}
    storage.meanwhile = lambda: None
    saver._save_checkpoints(lambda: True, 0.0)
    assert storage.checkpoint() == {"step": b"12"}
    assert list((tmp_path / "inner").iterdir()) == []


def test_a_checkpoint_that_is_written_in_place_keeps_its_version_before(
    saver: Saver, storage: Slow, tmp_path: Path
) -> None:
    step = tmp_path / "checkpoint" / "step"
    step.write_text("1")
    storage.meanwhile = lambda: step.write_text("1234")
    saver._save_checkpoints(lambda: True, 0.0)
    assert storage.checkpoint() is None, "an empty list would hide the checkpoint of the attempt before"
    storage.meanwhile = lambda: None
    saver._save_checkpoints(lambda: True, 0.0)
    assert storage.checkpoint() == {"step": b"1234"}
    step.write_text("12345")
    storage.meanwhile = lambda: step.write_text("123456")
    saver._save_checkpoints(lambda: True, 0.0)
    assert storage.checkpoint() == {"step": b"1234"}


def test_what_cannot_be_deleted_is_told_and_other_names_are_refused(
    saver: Saver, storage: Slow, tmp_path: Path
) -> None:
    notes: list[str] = []
    saver._folder.add_to_log = notes.append
    saver._folder.stderr = str(tmp_path / "stderr")
    saver._entry["keep"] = "none"
    storage.kept["code/x"] = b"x"
    storage.kept[LIST] = json.dumps({"files": {"a": {"object": "code/x", "size": 1, "mtime_ns": 1}}}).encode()
    assert saver.finish(True, lambda: True) == ""
    assert "code/x" in storage.kept
    assert "against checkpoint.keep" in notes[0]
    assert "not a checkpoint file of trial t" in notes[0]


def test_what_all_attempts_have_saved_goes(saver: Saver, storage: Slow) -> None:
    saver._entry["keep"] = "none"
    saver._spec.attempt = 60
    for number in (0, 3, 60):
        name = f"checkpoints/t/{number}/1/a"
        storage.kept[name] = b"x"
        files = {"a": {"object": name, "size": 1, "mtime_ns": 1}}
        storage.kept[f"checkpoints/t/{number}.json"] = json.dumps({"files": files}).encode()
    assert saver.finish(True, lambda: True) == ""
    assert storage.kept == {}


def keep(storage: Slow, attempt: int, **files: bytes) -> None:
    """Put a checkpoint of an attempt into the storage, with its list."""
    listed = {}
    for path, content in files.items():
        name = f"checkpoints/t/{attempt}/{content.decode()}/{path}"
        storage.kept[name] = content
        listed[path] = {"object": name, "size": len(content), "mtime_ns": 1}
    storage.kept[f"checkpoints/t/{attempt}.json"] = json.dumps({"saved": 1, "files": listed}).encode()


@pytest.fixture
def third(saver: Saver, tmp_path: Path) -> Saver:
    """The saver of a third attempt, on another machine than the first two."""
    saver._spec.attempt = 2
    saver._folder.add_to_log = lambda text: None
    saver._folder.stderr = str(tmp_path / "stderr")
    return saver


def test_a_checkpoint_that_an_abandoned_attempt_replaces_meanwhile_is_fetched_anew(
    third: Saver, storage: Slow, tmp_path: Path
) -> None:
    keep(storage, 1, model=b"10", step=b"10")

    def replace() -> None:
        storage.kept.clear()
        keep(storage, 1, model=b"20", step=b"20")

    storage.before_get["checkpoints/t/1/10/step"] = replace
    third.restore(lambda: True)
    assert (tmp_path / "checkpoint" / "step").read_text() == (tmp_path / "checkpoint" / "model").read_text() == "20"


def test_a_checkpoint_that_is_replaced_at_each_fetch_is_not_fetched_for_ever(
    third: Saver, storage: Slow, tmp_path: Path
) -> None:
    keep(storage, 0, step=b"5")
    numbers = itertools.count(10)

    def replace() -> None:
        for name in [name for name in storage.kept if name.startswith("checkpoints/t/1/")]:
            del storage.kept[name]
        text = str(next(numbers)).encode()
        keep(storage, 1, step=text)
        storage.before_get[f"checkpoints/t/1/{text.decode()}/step"] = replace

    replace()
    third.restore(lambda: True)
    assert (tmp_path / "checkpoint" / "step").read_text() == "5"
    assert "starts with older checkpoints" in (tmp_path / "stderr").read_text()


def go_on(host: Path, storage: Slow, attempt: int, step: str | None, mtime_s: float | None = None) -> str | None:
    """Run an attempt that writes `step`, at the time of its host. Return what it found."""
    saver = make_saver(host, storage, attempt, str(host / "checkpoints" / "t"))
    saver.restore(lambda: True)
    path = host / "checkpoints" / "t" / "step"
    found = path.read_text() if path.exists() else None
    if step is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step)
        if mtime_s is not None:
            os.utime(path, (mtime_s, mtime_s))
        saver._save_checkpoints(lambda: True, 0.0)
    return found


def test_the_checkpoint_of_a_later_attempt_is_newer_whatever_the_clocks_of_hosts_say(
    storage: Slow, tmp_path: Path
) -> None:
    fast, slow = tmp_path / "fast", tmp_path / "slow"
    assert go_on(fast, storage, 0, "5", 3e9) is None
    assert go_on(slow, storage, 1, "10", 1e9) == "5"
    assert go_on(fast, storage, 2, None) == "10", "its own has a later time"
    assert go_on(fast, storage, 3, "15", 3e9) == "10"
    assert go_on(slow, storage, 4, None) == "15"
    assert go_on(slow, storage, 5, None) == "15"


def test_what_is_here_and_not_in_the_storage_is_kept(storage: Slow, tmp_path: Path) -> None:
    go_on(tmp_path / "a", storage, 0, "5", 1e9)
    go_on(tmp_path / "b", storage, 1, "10", 3e9)
    go_on(tmp_path / "a", storage, 2, None)
    (tmp_path / "a" / "checkpoints" / "t" / "step").write_text("12")
    assert go_on(tmp_path / "a", storage, 3, None) == "12"


@pytest.mark.parametrize("note", [b"", b"[]", b'{"attempt": 0}', b"\xff", b"[" * 900])
def test_without_a_note_that_can_be_read_times_decide(storage: Slow, tmp_path: Path, note: bytes) -> None:
    go_on(tmp_path / "a", storage, 0, "5", 1e9)
    go_on(tmp_path / "b", storage, 1, "10", 3e9)
    (tmp_path / "a" / "checkpoints" / "t.attempt").write_bytes(note)
    assert go_on(tmp_path / "a", storage, 2, None) == "10"


def test_a_note_that_cannot_be_written_leaves_no_old_one(storage: Slow, tmp_path: Path) -> None:
    go_on(tmp_path, storage, 0, "5")
    saver = make_saver(tmp_path, storage, 1, str(tmp_path / "checkpoints" / "t"))
    notes: list[str] = []
    saver._folder.add_to_log = notes.append
    (tmp_path / "checkpoints" / f"t.attempt.{os.getpid()}.new").mkdir()
    saver.restore(lambda: True)
    assert not (tmp_path / "checkpoints" / "t.attempt").exists()
    assert "cannot be noted" in notes[0]


def test_a_storage_that_hangs_replaces_nothing_under_the_running_trial(
    third: Saver, storage: Slow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(storage, 1, step=b"5")
    goes_on = threading.Event()
    storage.before_get["checkpoints/t/1/5/step"] = lambda: goes_on.wait(60) and None
    monkeypatch.setattr(patient_storage, "_HANGS_S", 0.1)
    third._entry["patience_s"] = 0.0
    third.restore(lambda: True)
    assert "starts without the checkpoints" in (tmp_path / "stderr").read_text()
    (tmp_path / "checkpoint" / "step").write_text("1")
    goes_on.set()
    with third._shared.turn:  # the fetch has ended
        assert (tmp_path / "checkpoint" / "step").read_text() == "1"


LOST = b'{"saved": 1, "files": {"a": {"object": "gone", "size": 1, "mtime_ns": 1}}}'


@pytest.mark.parametrize("newest", [LOST, b"[]", b'{"files": {"a": 1}}'])
def test_without_a_whole_newest_checkpoint_the_one_before_is_taken(
    third: Saver, storage: Slow, tmp_path: Path, newest: bytes
) -> None:
    keep(storage, 0, step=b"5")
    storage.kept["checkpoints/t/1.json"] = newest
    third.restore(lambda: True)
    assert (tmp_path / "checkpoint" / "step").read_text() == "5"
    assert "starts with older checkpoints: those of attempt 1 cannot be used" in (tmp_path / "stderr").read_text()


def test_whatever_a_plugins_storage_raises_nothing_counts_as_saved(third: Saver, tmp_path: Path) -> None:
    vault = "class Vault(Storage):\n def put(self, *_): raise KeyError('shelf')\n"
    program = vault + "def open_storage(entry): return Vault()"
    third._shared = PatientStorage({"kind": "program", "program": program})
    (tmp_path / "checkpoint" / "step").write_text("1")
    told = third.finish(True, lambda: True)
    assert "its checkpoints stay in" in told
    assert "KeyError: 'shelf'" in told


@pytest.mark.parametrize("program", ["raise RuntimeError('no route')", "def open_storage(entry): ..."])
def test_code_that_a_plugins_storage_cannot_bring_is_missed(tmp_path: Path, program: str) -> None:
    assert fetch_code({"kind": "program", "program": program}, str(tmp_path / "0.tar.gz")) != ""


@pytest.mark.parametrize(("refusals", "told"), [(2, ""), (1000, "no thread can be started for the shared storage")])
def test_a_machine_without_room_for_a_thread_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, refusals: int, told: str
) -> None:
    start, left = threading.Thread.start, iter(range(refusals))

    def refuse(thread: threading.Thread) -> None:
        if next(left, None) is not None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[bool] = []
    found = PatientStorage({}).run(lambda: done.append(True), lambda: True, patience_s=1.0 if told else 100.0)
    assert found.startswith(told)
    assert done == ([] if told else [True])
