"""Code directories of other people, or that change meanwhile: no file is waited for, and no rule takes long."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nnilite import codedir
from nnilite._doctor.script_imports import find_imports
from nnilite._manager.provenance_recording import hash_of
from nnilite.codedir import list_files, pack
from nnilite.config._class_hints import explain_missing_class
from nnilite.config._command_hints import find_command_hints
from nnilite.errors import CodeDirError


@pytest.fixture
def code(tmp_path: Path) -> Path:
    root = tmp_path / "my co'de $x\n"
    root.mkdir()
    return root


@pytest.mark.parametrize("line", ["*a" * 60 + "b", "**/a/" * 60 + "b", "[ab]*" * 60 + "c", "a/**/a/**/" * 60 + "b"])
def test_a_pattern_with_many_stars_takes_little(code: Path, line: str) -> None:
    """As a regular expression, it would take years for these names, and nothing could end it."""
    (code / ".nniignore").write_text(line)
    (code / ("a" * 250)).write_text("x")
    (code / ("a/" * 150) / "a").mkdir(parents=True)
    assert len(list_files(code).files) == 3


@pytest.mark.parametrize("text", [b"x\n" * 20_000, b"\0" * (2 << 20)])
def test_an_ignore_file_without_end_is_refused(code: Path, text: bytes) -> None:
    (code / ".nniignore").write_bytes(text)
    with pytest.raises(CodeDirError, match=r"nniignore has more than 10,000 lines or 1 MB"):
        list_files(code)


def test_ignore_files_of_many_folders_are_counted_together(code: Path) -> None:
    for number in range(20):
        (code / f"f{number}").mkdir()
        (code / f"f{number}" / ".nniignore").write_text("x\n" * 600)
    with pytest.raises(CodeDirError, match=r"nniignore, with those in other folders, has more than 10,000 lines"):
        list_files(code)


def test_patterns_that_are_tried_for_each_file_are_few(code: Path) -> None:
    (code / ".nniignore").write_text("".join(f"a*{number}\n" for number in range(1001)))
    with pytest.raises(CodeDirError, match=r"have more than 1,000 patterns with wildcards that are tried"):
        list_files(code)


@pytest.mark.parametrize("line", ["n{}", "/n{}", "a/n{}", "n{}/", "*.n{}", "n{}*", "!n{}", "# {}"])
def test_patterns_without_a_star_in_the_middle_are_looked_up(code: Path, line: str) -> None:
    """Ten thousand of them took 13 s for 200 files."""
    (code / ".nniignore").write_text("\n".join(map(line.format, range(9999))))
    walk = codedir.code_package._Walk(code)
    walk.go(10)
    assert (walk._tried, len(walk.files)) == (0, 1)


def test_an_ignore_file_larger_than_the_memory_is_not_read(code: Path) -> None:
    with (code / ".nniignore").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CodeDirError, match=r"nniignore has more than"):
        list_files(code)


def change_before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[[], object]) -> None:
    """Call `change` once, before a function is called for the first time."""
    real, left = getattr(owner, name), [change]

    def changed(*arguments: Any) -> Any:
        if left:
            left.pop()()
        return real(*arguments)

    monkeypatch.setattr(owner, name, changed)


def put_pipe(place: Path) -> None:
    place.unlink(missing_ok=True)
    os.mkfifo(place)


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code / "a.py").write_text("x")
    change_before(monkeypatch, codedir.code_package, "_packed", lambda: put_pipe(code / "a.py"))
    package = pack(code, tmp_path / "cache")
    assert (package.files, package.notes) == ((), ("a.py is left out: it is neither a file nor a folder",))


def test_a_pipe_in_place_of_a_file_whose_hash_is_recorded_is_not_waited_for(tmp_path: Path) -> None:
    put_pipe(tmp_path / "a.py")
    with pytest.raises(OSError, match="it is not a regular file"):
        hash_of(tmp_path / "a.py")


def test_a_pipe_in_place_of_an_ignore_file_is_not_waited_for(code: Path) -> None:
    os.mkfifo(code / ".nniignore")
    (code / "a.py").write_text("x")
    assert [file.path for file in list_files(code).files] == ["a.py"]


def test_a_pipe_that_a_link_leads_to_by_now_is_no_file(code: Path, tmp_path: Path) -> None:
    (code / "a.py").symlink_to(tmp_path / "pipe")
    put_pipe(tmp_path / "pipe")
    walk = codedir.code_package._Walk(code)
    walk._file("a.py")
    assert (walk.files, walk.notes) == ([], ["a.py is left out: it is neither a file nor a folder"])


def test_a_folder_that_becomes_a_file_is_left_out(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code / "d").mkdir()

    def change() -> None:
        (code / "d").rmdir()
        (code / "d").write_text("x")

    change_before(monkeypatch, codedir.code_package._Walk, "_rules", change)
    assert list_files(code).files == ()


def test_folders_deeper_than_paths_can_be_are_named(code: Path) -> None:
    place = os.open(code, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=place)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    with pytest.raises(CodeDirError, match=r"cannot read (d{200}/)+ .*or leave it out by a line"):
        list_files(code)


def test_a_copy_of_a_file_that_grows_has_what_was_listed(code: Path, tmp_path: Path) -> None:
    (code / "train.log").write_text("x" * 100)
    listed = list_files(code)
    (code / "train.log").write_text("y" * 10_000)
    listed.copy(tmp_path / "copy")
    assert (tmp_path / "copy/train.log").read_text() == "y" * 100


def test_a_copy_waits_for_no_pipe(code: Path, tmp_path: Path) -> None:
    (code / "a.py").write_text("x")
    listed = list_files(code)
    put_pipe(code / "a.py")
    with pytest.raises(OSError, match="not a regular file"):
        listed.copy(tmp_path / "copy")


@pytest.mark.parametrize("name", ["a.py", "./a.sh", "a.sh"])
def test_hints_at_a_command_wait_for_no_pipe_and_read_no_device_in_place_of_its_script(code: Path, name: str) -> None:
    put_pipe(code / name)
    assert find_command_hints(f"python3 {name}", code) == []
    (code / name).unlink()
    (code / name).symlink_to("/dev/zero")
    assert find_command_hints(f"python3 {name}", code) == []


@pytest.mark.parametrize("put", [lambda path: put_pipe(path), lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_a_device_in_place_of_a_program_has_no_imports_and_no_classes(
    code: Path, put: Callable[[Path], None]
) -> None:
    put(code / "a.py")
    assert find_imports("python3 a.py", code) == []
    assert explain_missing_class("a.Tuner", code) == ""


def test_a_script_larger_than_the_memory_is_not_read(code: Path) -> None:
    with (code / "a.py").open("wb") as file:
        file.truncate(1 << 40)
    assert find_imports("python3 a.py", code) == []
    assert find_command_hints("python3 a.py", code) == []
