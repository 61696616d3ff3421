"""Small files that are read and written by the system's calls alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nnilite._keeper import folder_owner, plain_file
from other_user import STRANGER, known_user
from silent_disk import failing_at


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a 'file'\n$HOME")


def test_what_is_written_can_be_read_by_its_owner_alone(path: str) -> None:
    plain_file.write(path, b"content")
    assert plain_file.read(path, 100) == b"content"
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_no_more_is_read_than_was_asked_for(path: str) -> None:
    plain_file.write(path, b"0123456789")
    assert plain_file.read(path, 4) == b"0123"


def test_a_disk_that_takes_a_byte_at_a_time_gets_all_of_them(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = os.write, os.read
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:1]))
    monkeypatch.setattr(os, "read", lambda file, most: read(file, 1))
    plain_file.write(path, b"content")
    assert plain_file.read(path, 100) == b"content"


def test_reserved_room_is_written_over_and_the_rest_of_it_given_back(path: str) -> None:
    plain_file.write(path, b" " * 1000)
    before = Path(path).stat().st_ino
    plain_file.write(path, b"short", flags=0, cut_at=5)
    assert (plain_file.read(path, 2000), Path(path).stat().st_ino) == (b"short", before)


def test_a_write_that_fails_half_way_is_an_error_and_leaves_no_file_open(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def write(file: int, data: bytes) -> int:
        if taken:
            raise OSError(28, "No space left on device")
        taken.append(file)
        return 3

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        plain_file.write(path, b"content")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(taken[0])


def test_nobody_waits_for_a_pipe_in_the_place_of_a_file(path: str) -> None:
    os.mkfifo(path)
    assert plain_file.read(path, 100) == b""
    writer = os.open(path, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        plain_file.read(path, 100)
    os.close(writer)


def test_what_is_at_a_path_is_known_or_the_system_has_not_said(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(path).mkdir()
    assert (plain_file.is_there(path), plain_file.is_folder_there(path)) == (True, True)
    assert not any(map(plain_file.is_there, [f"{path}/none", f"{__file__}/below"]))
    monkeypatch.setattr(os, "stat", failing_at(Path(path)))
    for look in (plain_file.is_there, plain_file.is_folder_there):
        with pytest.raises(OSError, match="Input/output error"):
            look(path)


def test_a_folder_of_another_user_where_all_may_make_some_is_known(tmp_path: Path) -> None:
    stranger = known_user(STRANGER).pw_uid
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o1777)
    for place in (tmp_path / "all", tmp_path):
        (place / "theirs").mkdir()
        os.chown(place / "theirs", stranger, stranger)
    (tmp_path / "mine").mkdir()
    (tmp_path / "all/link").symlink_to(tmp_path / "mine")
    os.lchown(tmp_path / "all/link", stranger, stranger)
    (tmp_path / "all/mine").mkdir()
    names = ("all/theirs", "all/link", "all/mine", "theirs", "mine")
    assert [name for name in names if folder_owner.is_made_by_others(str(tmp_path / name))] == [
        "all/theirs",
        "all/link",
    ]


def test_a_folder_below_one_of_another_user_is_known_unless_it_was_there(tmp_path: Path) -> None:
    stranger = known_user(STRANGER).pw_uid
    tmp_path.chmod(0o1777)
    (tmp_path / "theirs/below").mkdir(parents=True)
    (tmp_path / "theirs/mine").mkdir()
    (tmp_path / "mine").mkdir()
    for place in ("theirs", "theirs/below"):
        os.chown(tmp_path / place, stranger, stranger)
    found = {
        (name, is_new): folder_owner.is_made_by_others(str(tmp_path / name), is_new)
        for name in ("theirs/below", "theirs/mine", "mine")
        for is_new in (False, True)
    }
    assert [one for one, laid in found.items() if not laid] == [("theirs/mine", False), ("mine", False), ("mine", True)]
