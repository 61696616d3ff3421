"""Whatever stands in the files that nnilite reads back: a sentence with path and cure, and the others go on."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import tracemalloc
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._experiments.documents import read_content, write_json
from nnilite._experiments.experiment_token import read_user_token
from nnilite._experiments.manager_state import read_manager
from nnilite._manager.__main__ import parse, serve
from nnilite._manager.ready_pipe import ReadyPipe
from nnilite._running import launch, removal
from nnilite._store.database_file import FILE_NAME
from nnilite.config import load_stored
from nnilite.errors import DamagedFile, NniliteError, StoreError, UnreadableFile
from odd_json import BYTES, JSON, SETTINGS, like
from silent_disk import failing_at
from stand_in_manager import Make

READERS = [
    *(["experiment", "list", "--all"], ["experiment", "list", "--all", "--json"], ["experiment", "show", "abcd"]),
    *(["experiment", "status", "abcd"], ["config", "show", "abcd"], ["trial", "ls", "abcd"], ["stop", "--all"]),
    *(["log", "manager", "abcd"], ["stop", "abcd"], ["top"]),
]


def codes(*commands: Sequence[str]) -> list[int]:
    """Each ends with a code of its own: what is no error of nnilite's would be raised here."""
    return [run(list(command)) for command in commands]


REGISTERED = like(id="abcd", name="digits", directory="/tmp", platform="local", started=1.0)


@SETTINGS
@given(content=REGISTERED)
@example(content=b'{"id": "abcd", "name": "", "directory": "/tmp", "platform": "", "started": "abc"}')
def test_any_registry_file_leaves_all_commands_working(whole: Path, make: Make, content: bytes) -> None:
    registry.find_path("abcd").write_bytes(content)
    if not (whole.parent / "other").exists():
        make("other")
    assert set(codes(*READERS)) <= {0, 1, 3, 4}
    assert codes(["experiment", "show", "other"]) == [0]


@SETTINGS
@given(
    content=like(state="DONE", ended=1.0, pid=4_000_000, port=8080, url="http://127.0.0.1:1", tls_cert="/no", left="x")
)
@example(content=b'{"ended": "abc"}')
@example(content=b'{"state": []}')
def test_any_word_of_a_manager_leaves_all_commands_working(whole: Path, content: bytes) -> None:
    (whole / "manager.json").write_bytes(content)
    assert set(codes(*READERS)) <= {0, 1, 3, 4}
    assert codes(["experiment", "show", "abcd"], ["trial", "ls", "abcd"]) == [0, 0], "a stopped one does without"


@SETTINGS
@given(content=like(state="RUNNING", ended=1.0, pid=4_000_000, port=8080, url="http://127.0.0.1:1", tls_cert="/no"))
def test_any_word_of_a_manager_that_runs_leaves_all_commands_working(
    make: Make, home: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr("nnilite._running.managers.os.kill", lambda *_: None)
    monkeypatch.setattr("nnilite._cli.stop.managers.wait_until_ended", lambda entry: None)
    folder = home / "abcd" if (home / "abcd").exists() else make("abcd")
    (folder / "manager.json").write_bytes(content)
    assert set(codes(*READERS)) <= {0, 1, 3, 4, 5}


@SETTINGS
@given(content=BYTES)
@example(content=b"")
@example(content="t\u00f6ken-of-somebody".encode())
def test_any_token_is_used_or_refused_in_a_sentence(make: Make, home: Path, content: bytes) -> None:
    folder = home / "abcd" if (home / "abcd").exists() else make("abcd")
    (folder / "token").write_bytes(content)
    assert set(codes(*(reader for reader in READERS if reader[0] != "stop"))) <= {0, 1, 3, 5}


@settings(SETTINGS, max_examples=150)
@given(data=st.data())
def test_any_configuration_is_used_or_refused_with_its_path(whole: Path, data: st.DataObject) -> None:
    path = whole / "config.json"
    sound = whole.parent / "sound.json"
    if not sound.exists():
        sound.write_bytes(path.read_bytes())
    fields = json.loads(sound.read_bytes())
    content = data.draw(like(**fields))
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(fields)))
        content = json.dumps({**fields, name: data.draw(JSON)}).encode()
    path.write_bytes(content)
    refusal = ""
    try:
        load_stored(whole, paths=False)
    except NniliteError as error:
        refusal = str(error)
    assert not refusal or str(path) in refusal


def test_a_damaged_experiment_is_shown_with_its_cure_and_the_others_as_ever(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    make("wxyz", running=False)
    known = json.loads(registry.find_path("wxyz").read_text())
    write_json(registry.find_path("wxyz"), {**known, "started": "abc"})
    assert run(["experiment", "list"]) == 0
    said = capsys.readouterr()
    assert "DAMAGED" in said.out
    assert "abcd  digits  RUNNING" in said.out
    assert f"{registry.find_path('wxyz')} is damaged (`started` must be a time" in said.err.replace("\\n", "\n")
    assert run(["experiment", "show", "wxyz"]) == 1
    assert "`nnictl experiment delete wxyz` forgets the experiment" in capsys.readouterr().err
    assert run(["experiment", "delete", "wxyz", "-y"]) == 0
    assert [entry.id for entry in registry.entries()] == ["abcd"]


def test_an_experiment_of_a_newer_nnilite_is_called_so_and_not_a_mistake_in_its_config(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((whole / "config.json").read_text())
    write_json(whole / "config.json", {**config, "fieldOfTomorrow": 1})
    with closing(sqlite3.connect(whole / FILE_NAME)) as db:
        db.execute("PRAGMA user_version = 99")
    assert run(["trial", "ls", "abcd"]) == 1
    said = capsys.readouterr().err
    assert "was written by a newer nnilite (schema 99); update nnilite" in said
    assert "fieldOfTomorrow" not in said
    for mode in ("resume", "view"):
        options = parse(["--directory", str(whole), "--mode", mode])
        with pytest.raises(StoreError, match="written by a newer nnilite"):
            asyncio.run(serve(options, ReadyPipe(None), cast(Any, None)))


def unreadable(path: Path) -> Path:
    """Make it a file that is there and that the disk does not give: here a link to itself."""
    path.unlink(missing_ok=True)
    path.symlink_to(path)
    return path


def test_a_configuration_that_cannot_be_read_now_is_not_called_damaged(whole: Path) -> None:
    path = unreadable(whole / "config.json")
    with pytest.raises(UnreadableFile, match=r"config.json cannot be read now \(Too many levels") as caught:
        load_stored(whole)
    assert str(path) in str(caught.value)


def test_an_experiment_whose_files_cannot_be_read_now_is_neither_damaged_nor_forgotten(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd")
    make("wxyz", running=False)
    path = unreadable(registry.find_path("wxyz"))
    unreadable(registry.entries()[0].directory / "manager.json")
    assert run(["experiment", "list", "--all"]) == 0
    said = capsys.readouterr()
    assert "DAMAGED" not in said.out
    assert said.out.count("UNREADABLE") == 2
    assert run(["experiment", "delete", "wxyz", "-y"]) == 1
    assert path.is_symlink()


def test_where_the_list_of_experiments_cannot_be_read_now_nobody_says_that_there_are_none(
    whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = registry.find_path("abcd").parent
    with monkeypatch.context() as patch:
        for call in ("listdir", "scandir"):
            patch.setattr(os, call, failing_at(place, getattr(os, call)))
        assert codes(["experiment", "list", "--all"], ["stop", "--all"]) == [1, 1]
    assert capsys.readouterr().err.count("cannot be read now (Input/output error)") == 2


def test_a_copy_does_not_take_the_place_of_a_folder_that_does_not_answer(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make("abcd", running=False)
    copy = shutil.copytree(folder, tmp_path / "copies" / "abcd")
    (copy / "config.json").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", failing_at(folder))
        with pytest.raises(UnreadableFile, match="Input/output error"):
            registry.at(copy)
    assert registry.find("abcd").directory == folder


def test_an_experiment_whose_folder_does_not_answer_is_neither_deleted_nor_forgotten(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make("abcd", running=False)
    entry = registry.find("abcd")
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", failing_at(folder))
        with pytest.raises(UnreadableFile, match="Input/output error"):
            removal.delete(entry)
    assert registry.find("abcd").directory == folder


def test_a_token_that_cannot_be_read_now_is_not_replaced(whole: Path) -> None:
    unreadable(whole / "token")
    with pytest.raises(UnreadableFile):
        read_user_token(whole)


@pytest.mark.parametrize("pid", [0, -1, 1, True, 2**40])
def test_no_signal_goes_to_a_process_that_no_manager_can_be(make: Make, pid: int) -> None:
    write_json(make("abcd") / "manager.json", {"pid": pid})
    with pytest.raises(DamagedFile, match="`pid` must be"):
        read_manager(registry.entries()[0].directory)


@pytest.mark.timeout(10)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(make: Make) -> None:
    folder = make("abcd", running=False)
    for name in ("manager.json", "token"):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    (entry,) = registry.entries()
    assert "it is not a regular file" in entry.damage
    with pytest.raises(DamagedFile, match="not a regular file"):
        launch.token(entry)


@pytest.mark.parametrize("name", ["..", "a b", "x\n", "-" * 65])
def test_a_file_whose_name_is_no_id_is_damaged_and_deletes_nothing_but_itself(home: Path, name: str) -> None:
    (home / ".nnilite").mkdir(parents=True)
    (home / "precious").touch()
    write_json(home / ".nnilite" / f"{name}.json", {"id": name, "directory": str(home)})
    assert registry.entries()[0].state == "DAMAGED"
    assert run(["experiment", "delete", "-y", "--", name]) == 0
    assert (home / "precious").exists()
    assert registry.entries() == []


@pytest.mark.parametrize("experiment", ["..", "a/b", "", "x" * 65, "a b"])
def test_an_experiment_cannot_have_the_id(whole: Path, experiment: str) -> None:
    config: Any = load_stored(whole)
    with pytest.raises(NniliteError, match="cannot have the id"):
        launch.create(config, experiment=experiment or "\0")


def test_a_small_file_is_read_with_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"[1]")
    tracemalloc.start()
    try:
        assert read_content(path, "") == b"[1]"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
