"""The guard of a manager's files: what it takes for gone, and the manager's end."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from nnilite._experiments import registry
from nnilite._experiments.file_guard import Guard, GuardedFile, KeeperFile
from nnilite._experiments.locking import ManagerLock
from nnilite.errors import NotFound
from nnilite.testing import eventually
from silent_disk import failing_at


def test_a_look_that_is_under_way_ends_before_the_manager_and_none_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else files come back into a folder that is being deleted."""
    goes_on, looks = threading.Event(), threading.Event()

    def slow(directory: Path) -> None:
        looks.set()
        goes_on.wait(60)

    monkeypatch.setattr(registry, "make_folders", slow)
    lock = ManagerLock(tmp_path)
    lock.acquire()
    guard = Guard(tmp_path, lock, KeeperFile(tmp_path / "keeper.pyz"), {tmp_path / "token": GuardedFile(b"t")})
    look, close = threading.Thread(target=guard.look), threading.Thread(target=guard.close)
    look.start()
    assert looks.wait(60)
    close.start()
    assert close.is_alive()
    goes_on.set()
    eventually(lambda: not close.is_alive())
    look.join(10)
    (tmp_path / "token").unlink()
    guard.look()
    lock.release()
    assert not (tmp_path / "token").exists()


def test_a_folder_that_does_not_answer_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = ManagerLock(tmp_path)
    lock.acquire()
    guard = Guard(tmp_path, lock, KeeperFile(tmp_path / "keeper.pyz"), {})
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", failing_at(tmp_path))
        for _ in range(10):
            guard.look()
    guard.look()
    lock.release()
    assert (tmp_path / registry.FOLDERS[0]).is_dir()


def test_a_folder_that_goes_after_a_look_at_the_lock_has_as_many_looks_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(directory: Path) -> None:
        raise NotFound(f"{directory} is gone")

    lock = ManagerLock(tmp_path)
    lock.acquire()
    guard = Guard(tmp_path, lock, KeeperFile(tmp_path / "keeper.pyz"), {})
    with monkeypatch.context() as patched:
        patched.setattr(registry, "make_folders", gone)
        guard.look()
        guard.look()
    guard.look()
    monkeypatch.setattr(registry, "make_folders", gone)
    guard.look()
    guard.look()
    with pytest.raises(NotFound, match="is gone"):
        guard.look()
    lock.release()
