"""The lock that keeps managers apart, also where somebody removes its file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nnilite._experiments import registry
from nnilite._experiments.locking import ManagerLock, is_held
from nnilite.errors import NniliteError, NotFound, UnreadableFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "it's $HOME; a\nfolder"
    place.mkdir()
    return place


@contextlib.contextmanager
def taken(folder: Path) -> Iterator[ManagerLock]:
    lock = ManagerLock(folder)
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


@pytest.fixture
def no_folder_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS."""
    lock = fcntl.flock

    def flock(file: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_lock_is_held_until_it_is_released(folder: Path) -> None:
    assert not is_held(folder)
    with taken(folder):
        assert is_held(folder)
        with pytest.raises(BlockingIOError), taken(folder):
            pass
        assert is_held(folder)
    assert not is_held(folder)


def test_without_its_file_a_lock_still_holds_and_the_file_comes_again(folder: Path) -> None:
    with taken(folder) as lock:
        (folder / "lock").unlink()
        assert is_held(folder)
        with pytest.raises(BlockingIOError), taken(folder):
            pass
        assert lock.renew()
        assert not lock.renew()
        assert (folder / "lock").exists()


def test_without_file_descriptors_nobody_says_that_a_lock_is_free(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(folder.parent / "home"))
    with taken(folder):
        registry.add("Ab1cd", "a name", folder, "local", None)
        monkeypatch.setattr(os, "open", refusing(folder, os.open))
        with pytest.raises(UnreadableFile, match=r"cannot be read now \(Too many open files\)"):
            is_held(folder)
        [entry] = registry.entries()
        assert (entry.state, entry.alive) == (registry.UNREADABLE, False)


def refusing(folder: Path, real: Callable[..., int]) -> Callable[..., int]:
    """An `os.open` that has no file descriptors left for what is in a folder."""

    def refuse(path: Path, *more: int) -> int:
        if Path(path) == folder or folder in Path(path).parents:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *more)

    return refuse


@pytest.mark.usefixtures("no_folder_locks")
def test_where_folders_cannot_be_locked_the_file_alone_counts(folder: Path) -> None:
    with taken(folder) as lock:
        with pytest.raises(BlockingIOError), taken(folder):
            pass
        (folder / "lock").unlink()
        assert lock.renew()
        assert is_held(folder)


@pytest.mark.usefixtures("no_folder_locks")
def test_who_was_slower_to_make_the_file_again_learns_that_another_has_the_lock(folder: Path) -> None:
    with taken(folder) as first:
        (folder / "lock").unlink()
        with taken(folder):
            with pytest.raises(BlockingIOError):
                first.renew()


def test_a_folder_that_is_gone_or_another_one_is_told(folder: Path) -> None:
    with taken(folder) as lock:
        shutil.rmtree(folder)
        with pytest.raises(NotFound, match="is gone"):
            lock.renew()
        folder.mkdir()
        with pytest.raises(NotFound, match="is gone"):
            lock.renew()
        assert not (folder / "lock").exists()


def test_a_disk_without_locks_is_told_in_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(NniliteError, match=r"No locks available.*experimentWorkingDirectory"):
        with registry.lock(folder):
            pass


def test_a_lock_that_is_no_file_is_to_be_removed(folder: Path) -> None:
    (folder / "lock").mkdir()
    with pytest.raises(NniliteError, match=r"lock cannot be locked \(Is a directory\).*apart; remove it, since"):
        with registry.lock(folder):
            pass
    (folder / "lock").rmdir()
    (folder / "lock").symlink_to(folder / "elsewhere")
    with pytest.raises(NniliteError, match="remove it, since it must be a file"), registry.lock(folder):
        pass


def test_a_lock_of_another_user_is_not_the_disks_fault(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(ManagerLock, "_lock_file", refuse)
    with pytest.raises(NniliteError, match="run nnilite as the user who may write in"), registry.lock(folder):
        pass
