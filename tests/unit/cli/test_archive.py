"""`nnictl experiment save` and `load`: what an archive holds, and what may come out of a stranger's."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._keeper.tree_removal import remove_tree
from nnilite._store.writer import Store

Entries = dict[str, bytes]


@pytest.fixture
def saved(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The archive of `whole`, which is not on this machine any more."""
    assert run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip"), "-s"]) == 0
    assert run(["experiment", "delete", "abcd", "-y"]) == 0
    capsys.readouterr()
    return tmp_path / "a.zip"


def entries(path: Path) -> Entries:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, content: Entries) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)


def load(path: Path, *more: str) -> int:
    return run(["experiment", "load", "-p", str(path), *more])


def nothing_is_left(home: Path) -> bool:
    """Neither an experiment nor a draft of one."""
    return registry.entries() == [] and {path.name for path in home.iterdir()} <= {".nnilite"}


def in_database(path: Path, tmp_path: Path, *statements: str) -> None:
    """Change the database in an archive."""
    content = entries(path)
    place = tmp_path / "changed.sqlite"
    place.write_bytes(content["experiment/nnilite.sqlite"])
    with contextlib.closing(sqlite3.connect(place, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)
    write(path, {**content, "experiment/nnilite.sqlite": place.read_bytes()})


def test_a_saved_experiment_comes_back_elsewhere(saved: Path, tmp_path: Path) -> None:
    assert load(saved, "-l", str(tmp_path / "new")) == 0
    entry = registry.find("abcd")
    assert entry.directory == tmp_path / "new" / "abcd"
    assert (entry.directory / "trials" / "done1" / "0" / "trial.stdout").read_text() == "hello"
    config = json.loads((entry.directory / "config.json").read_text())
    assert (Path(config["trialCodeDirectory"]) / "trial.py").read_text() == "print(1)"
    assert run(["trial", "ls", "abcd"]) == 0


def test_what_ran_comes_back_with_it(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (whole / "provenance.json").write_text('{"starts": [{"time": 5.0, "commands": ["python3 train.py"]}]}')
    assert run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip")]) == 0
    assert "left out" not in capsys.readouterr().err
    assert run(["experiment", "delete", "abcd", "-y"]) == 0
    assert load(tmp_path / "a.zip") == 0
    capsys.readouterr()
    assert run(["experiment", "provenance", "abcd"]) == 0
    assert "python3 train.py" in capsys.readouterr().out


def test_code_goes_where_it_is_wanted(saved: Path, tmp_path: Path) -> None:
    assert load(saved, "-c", str(tmp_path / "code here")) == 0
    assert (tmp_path / "code here" / "trial.py").read_text() == "print(1)"


def test_an_archive_is_its_owners_and_holds_no_secret(whole: Path, tmp_path: Path) -> None:
    with contextlib.closing(Store.open(whole / "nnilite.sqlite")) as store:
        secret = store.secret()
    (whole / "log" / "link").symlink_to("/etc/passwd")
    run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip")])
    content = entries(tmp_path / "a.zip")
    assert stat.S_IMODE((tmp_path / "a.zip").stat().st_mode) == 0o600
    assert {name.split("/")[1] for name in content if "/" in name} == {"config.json", "nnilite.sqlite", "trials"}
    assert all(secret.encode() not in data and b"a-token" not in data for data in content.values())


def test_a_save_follows_no_link_that_was_laid_for_it(whole: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("mine")
    (tmp_path / ".a.zip.new").symlink_to(own)
    assert run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip")]) == 0
    assert own.read_text() == "mine"


def test_what_a_manager_had_not_yet_moved_into_the_database_is_saved(whole: Path, tmp_path: Path) -> None:
    store = Store.open(whole / "nnilite.sqlite")
    store.claim()  # in the log beside the database, as after a crash
    run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip")])
    store.close()
    (tmp_path / "saved.sqlite").write_bytes(entries(tmp_path / "a.zip")["experiment/nnilite.sqlite"])
    with contextlib.closing(sqlite3.connect(tmp_path / "saved.sqlite")) as db:
        assert db.execute("SELECT COUNT(*) FROM trials").fetchone() == (2,)


def test_folders_that_lie_too_deep_to_be_read_are_left_out(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = os.open(whole / "trials", os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 100, dir_fd=here)
        inner = os.open("d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert run(["experiment", "save", whole.name, "--path", str(tmp_path / "deep.zip")]) == 0
    assert "invalid or too long names" in capsys.readouterr().err
    remove_tree(str(whole / "trials"))


def test_a_copy_runs_again_what_still_ran_and_does_not_touch_the_job_of_the_first(saved: Path) -> None:
    assert load(saved) == 0
    with contextlib.closing(Store.open(registry.find("abcd").directory / "nnilite.sqlite")) as store:
        (live,) = store.resume_reader.snapshot(True).live
        assert (live.trial.state.value, live.trial.attempt, live.trial.started) == ("WAITING", 1, None)
        assert (live.trial.service, live.trial.attributes) == ("", {})
        known = store.resume_reader.attempt("runs1", 0)
        assert known is not None
        assert (known[1].state, known[1].handle) == ("LOST", None)


def test_each_copy_has_a_secret_of_its_own(saved: Path, tmp_path: Path) -> None:
    in_database(saved, tmp_path, "INSERT INTO meta VALUES ('secret', '" + "a" * 64 + "')")
    assert load(saved) == 0
    with contextlib.closing(Store.open(registry.find("abcd").directory / "nnilite.sqlite")) as store:
        assert store.file.meta("secret") is None
        assert store.secret() == store.secret() != "a" * 64


def test_trials_that_still_ran_are_told_at_the_save(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip")])
    assert "WARNING: 1 trial had not ended" in capsys.readouterr().err


@pytest.mark.timeout(20)
def test_a_zip_file_in_the_code_directory_does_not_hold_itself(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "my code")
    assert run(["experiment", "save", "abcd", "--code"]) == 0
    names = zipfile.ZipFile("nni_experiment_abcd.zip").namelist()
    assert [name for name in names if name.startswith("code/")] == ["code/trial.py"]


@pytest.mark.parametrize("file", ["nnilite.sqlite", "config.json"])
def test_half_an_experiment_is_not_saved(
    whole: Path, tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (whole / file).unlink()
    assert run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip")]) == 3
    assert f"{file} is gone" in capsys.readouterr().err
    assert list(tmp_path.glob("*a.zip*")) == []


NAMES = [
    *("experiment/../../out", "/etc/out", "elsewhere/out", "experiment", "experiment//log", "experiment/./log/x"),
    *("experiment/token", "experiment/lock", "experiment/manager.json", "experiment/.bashrc", "experiment/x.so"),
    *("experiment/config.json/x", "experiment/log/" + "d/" * 200 + "x", "code/../x"),
]


@pytest.mark.parametrize("name", NAMES)
def test_an_archive_holds_only_what_an_experiment_has(
    saved: Path, home: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(saved, {**entries(saved), name: b"evil"})
    assert load(saved) == 1
    assert "no experiment has" in capsys.readouterr().err
    assert nothing_is_left(home)


def test_a_path_that_is_there_twice_is_refused(saved: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(saved, "a") as archive:
        archive.writestr("experiment/config.json", "{}")
    assert load(saved) == 1
    assert "or the same path twice" in capsys.readouterr().err
    assert nothing_is_left(home)


def test_names_that_the_disk_does_not_tell_apart_are_refused(
    saved: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(saved, {**entries(saved), "experiment/log/a": b"1", "experiment/log/A": b"2"})
    monkeypatch.setattr("nnilite._cli.unpack.folds_case", lambda folder: True)
    assert load(saved) == 1
    assert nothing_is_left(home)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFBLK, stat.S_IFDIR])
def test_links_and_devices_are_refused(saved: Path, home: Path, kind: int, capsys: pytest.CaptureFixture[str]) -> None:
    info = zipfile.ZipInfo("experiment/log/odd")
    info.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(saved, "a") as archive:
        archive.writestr(info, "/etc/passwd")
    assert load(saved) == 1
    assert "a link, a device" in capsys.readouterr().err
    assert nothing_is_left(home)


def test_an_archive_that_would_fill_the_disk_is_refused_unless_it_is_wanted(
    saved: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nnilite._cli.archive_entries._ALWAYS_BYTES", 1 << 20)
    write(saved, {**entries(saved), "experiment/log/zeros": bytes(20 << 20)})
    assert load(saved) == 1
    assert "raise the limit with --max-size SIZE" in capsys.readouterr().err
    assert nothing_is_left(home)
    assert load(saved, "--max-size", "30mb") == 0


@pytest.mark.parametrize("most", ["5", "20"])
def test_an_archive_of_too_many_files_is_refused_unless_it_is_wanted(
    saved: Path, home: Path, most: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With 20 it is seen at the names, with 5 the archive's own directory is not even read."""
    write(saved, {**entries(saved), **{f"experiment/log/{i}-{'x' * 200}": b"" for i in range(400)}})
    assert load(saved, "--max-files", most) == 1
    assert "raise the limit with --max-files NUMBER" in capsys.readouterr().err
    assert nothing_is_left(home)
    assert load(saved, "--max-files", "1000") == 0


EVIL_SQL = [
    "CREATE TRIGGER evil AFTER INSERT ON trials BEGIN DELETE FROM metrics; END",
    "CREATE VIEW evil AS SELECT * FROM trials",
    "CREATE TABLE evil (x)",
    "CREATE INDEX evil ON trials (abs(sequence))",
    "ALTER TABLE trials ADD COLUMN evil",
    "DROP TABLE metrics",
    "PRAGMA user_version = 99",
    "PRAGMA application_id = 1",
    "UPDATE trials SET id = '../../../etc' WHERE sequence = 0",
    "UPDATE trials SET state = 'EVIL'",
    "UPDATE trials SET created = 'abc'",
    "UPDATE trials SET created = 9e999",
    "UPDATE trials SET revision = 'x'",
    "UPDATE attempts SET handle = '[]'",
    "UPDATE attempts SET message = x'00'",
    "INSERT INTO metrics VALUES (0, 0, 0, 0, 0, x'00', 1)",
    "INSERT INTO metrics VALUES (99, 0, 0, 0, 0, '1', 1)",
    "INSERT INTO calls VALUES (1, 'evil', NULL, NULL, NULL, NULL, 0)",
    "UPDATE meta SET value = 'abc' WHERE key = 'duration_s'",
    "UPDATE meta SET value = 'other' WHERE key = 'id'",
    "INSERT OR REPLACE INTO meta VALUES ('limits', '{\"concurrency\": \"many\"}')",
    "DELETE FROM meta",
]


def test_an_archive_of_a_newer_nnilite_is_called_so_and_not_a_mistake_in_its_config(
    saved: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_database(saved, tmp_path, "PRAGMA user_version = 99")
    content = entries(saved)
    config = {**json.loads(content["experiment/config.json"]), "fieldOfTomorrow": 1}
    write(saved, {**content, "experiment/config.json": json.dumps(config).encode()})
    assert load(saved) == 1
    assert "was written by a newer nnilite (schema 99)" in capsys.readouterr().err
    assert nothing_is_left(home)


@pytest.mark.parametrize("statement", EVIL_SQL, ids=lambda text: text[:50])
def test_a_database_that_nnilite_would_not_have_written_is_refused(
    saved: Path, home: Path, tmp_path: Path, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    in_database(saved, tmp_path, statement)
    assert load(saved) == 1
    assert f"{saved} does not contain a valid experiment" in capsys.readouterr().err
    assert nothing_is_left(home)


@pytest.mark.parametrize("value", ["{", "[" * 400 + "]" * 400, "1" + "0" * 400], ids=["half", "deep", "long"])
def test_values_that_earlier_versions_stored_are_taken_for_none(saved: Path, tmp_path: Path, value: str) -> None:
    metric = f"INSERT INTO metrics VALUES (0, 0, 0, 0, 0, '{value}', 1)"
    in_database(saved, tmp_path, f"UPDATE trials SET value = '{value}', parameters = '{value}'", metric)
    assert load(saved) == 0
    for command in (["trial", "ls", "abcd"], ["experiment", "export", "abcd"], ["experiment", "show", "abcd"]):
        assert run(command) == 0


def test_a_damaged_database_is_refused(saved: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = entries(saved)
    data = bytearray(content["experiment/nnilite.sqlite"])
    data[5000:9000] = b"x" * 4000
    write(saved, {**content, "experiment/nnilite.sqlite": bytes(data)})
    assert load(saved) == 1
    assert "does not contain a valid experiment" in capsys.readouterr().err
    assert nothing_is_left(home)


@pytest.mark.parametrize("config", [b"", b"[]", b"{}", b'{"trialCommand": 3}', b"[" * 100_000, b"\xff"], ids=range(6))
def test_a_configuration_that_cannot_work_is_refused(
    saved: Path, home: Path, config: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    write(saved, {**entries(saved), "experiment/config.json": config})
    assert load(saved) == 1
    assert f"{saved} contains " in capsys.readouterr().err
    assert nothing_is_left(home)


ABOUTS = [
    *(None, {}, [], 3, {"format": 1, "id": "../x"}, {"format": 2, "id": "abcd"}, {"format": 1, "id": 3}),
    *(
        {"format": 1, "id": "abcd", "started": "abc"},
        {"format": 1, "id": "abcd", "name": {}},
        {"format": True, "id": ".x"},
    ),
]


def test_a_full_disk_is_named_with_the_archive_and_leaves_none(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")  # a failed write does not name its file

    (tmp_path / "there").mkdir()
    monkeypatch.setattr("nnilite._cli.archive._write", fail)
    assert run(["experiment", "save", "abcd", "-p", str(tmp_path / "there" / "a.zip")]) == 1
    assert f"{tmp_path / 'there' / 'a.zip'}: No space left on device; free some" in capsys.readouterr().err
    assert not list((tmp_path / "there").iterdir())


def test_a_folder_that_takes_no_archive_is_named_with_the_archive(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    really = os.open

    def refuse(path: object, flags: int, *more: Any, **options: Any) -> int:
        if flags & os.O_CREAT and str(path).endswith(".new"):
            raise PermissionError(13, "Permission denied", path)
        return really(path, flags, *more, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr("nnilite._cli.archive.os.open", refuse)
    assert run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip")]) == 1
    assert f"{tmp_path / 'a.zip'}: Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("about", ABOUTS)
def test_foreign_zip_files_are_refused(saved: Path, home: Path, about: Any, capsys: pytest.CaptureFixture[str]) -> None:
    content = entries(saved)
    del content["nnilite.json"]
    write(saved, content if about is None else {**content, "nnilite.json": json.dumps(about).encode()})
    assert load(saved) == 1
    assert "was not written by" in capsys.readouterr().err
    assert nothing_is_left(home)


@pytest.mark.parametrize("broken", ["registry.add", "write_json", "Path.rename"])
def test_a_load_that_fails_at_any_step_leaves_nothing_behind(
    saved: Path, home: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"nnilite._cli.unpack.{broken}", fail)
    assert load(saved) == 1
    monkeypatch.undo()
    monkeypatch.setenv("NNILITE_HOME", str(home))
    assert nothing_is_left(home)


def test_an_archive_of_an_older_nnilite_leaves_behind_what_belonged_to_its_manager(saved: Path) -> None:
    old = ("callback", "keeper.pyz", "remote-jobs.json", ".nnilite-sdk-1/nni/__init__.py", "trials/done1/0/spec.json")
    write(saved, {**entries(saved), **{f"experiment/{name}": b"old" for name in old}})
    assert load(saved) == 0
    directory = registry.find("abcd").directory
    assert not any((directory / name).exists() for name in old)


@settings(max_examples=60)
@given(st.data())
def test_whatever_is_changed_in_an_archive_it_is_loaded_or_refused_in_a_sentence(
    saved: Path, tmp_path: Path, home: Path, data: st.DataObject
) -> None:
    content = bytearray(saved.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(
            st.one_of(st.integers(0, len(content) - 1), st.integers(len(content) - 600, len(content) - 1))
        )
        content[place] = data.draw(st.integers(0, 255))
    (tmp_path / "changed.zip").write_bytes(
        content[: data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))]
    )
    if load(tmp_path / "changed.zip") == 0:
        assert run(["experiment", "delete", "--all", "-y"]) == 0
    assert nothing_is_left(home)
