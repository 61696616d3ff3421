"""Folders of experiments that come from another person: who knows their tokens, and what their links lead to."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foreign_journal import write_foreign_journal
from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._experiments.documents import write_content
from nnilite._experiments.experiment_token import read_user_token
from nnilite._experiments.locking import ManagerLock
from nnilite._logging.log_file import open_log
from nnilite._manager.disk_reserve import DiskReserve
from nnilite._manager.log_limits import MOST_LOG_BYTES, LogLimits
from nnilite._store.database_file import FILE_NAME, refuse_newer_database
from nnilite._store.writer import Store
from nnilite.errors import StoreError

TOKEN = "a-token-of-this-experiment"


def test_the_token_of_an_own_experiment_stays(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_user_token(whole) == TOKEN
    # A network drive may show another owner of all files.
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert read_user_token(whole) == TOKEN


def test_a_token_that_came_with_a_folder_opens_nothing(whole: Path, tmp_path: Path) -> None:
    registry.remove("abcd")
    assert read_user_token(whole) != TOKEN
    (whole / "token").write_text(TOKEN)
    (tmp_path / "of another").mkdir()
    there = whole.rename(tmp_path / "of another" / "abcd")
    assert registry.at(there).directory == there
    assert read_user_token(there) != TOKEN


def test_a_token_that_is_a_link_to_what_all_can_read_opens_nothing(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "machine-id").write_text("0123456789abcdef" * 2)
    (whole / "token").unlink()
    (whole / "token").symlink_to(tmp_path / "machine-id")
    assert read_user_token(whole) != "0123456789abcdef" * 2
    assert not (whole / "token").is_symlink()


@pytest.mark.parametrize(
    ("of_folder", "of_token", "stays"), [(0o755, 0o600, True), (0o700, 0o644, True), (0o755, 0o644, False)]
)
def test_a_token_that_others_can_read_is_replaced(whole: Path, of_folder: int, of_token: int, stays: bool) -> None:
    whole.chmod(of_folder)
    (whole / "token").chmod(of_token)
    assert (read_user_token(whole) == TOKEN) is stays


def test_a_drive_without_modes_keeps_its_tokens(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole.chmod(0o755)
    (whole / "token").chmod(0o644)
    real = os.fstat
    alike = SimpleNamespace(st_mode=stat.S_IFREG | 0o777, st_uid=os.geteuid())
    monkeypatch.setattr(
        tempfile, "TemporaryFile", lambda **_: contextlib.nullcontext(SimpleNamespace(fileno=lambda: -1))
    )
    monkeypatch.setattr(os, "fstat", lambda file: alike if file == -1 else real(file))
    assert read_user_token(whole) == TOKEN


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_token_that_another_user_has_put_there_opens_nothing(whole: Path) -> None:
    os.chown(whole / "token", 12345, -1)
    assert read_user_token(whole) != TOKEN
    assert (whole / "token").stat().st_uid == 0


def test_links_in_the_places_of_logs_lead_nowhere(whole: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    os.truncate(mine, 2 * MOST_LOG_BYTES)
    for name in ("manager.log", "tuner.log"):
        (whole / "log" / name).symlink_to(mine)
    LogLimits(whole).look()
    os.mkfifo(whole / "log" / "pipe")
    for name in ("manager.log", "pipe"):
        log = open_log(whole / "log" / name)
        os.write(log, b"a line")
        os.close(log)
        assert (whole / "log" / name).read_text() == "a line"
    assert mine.stat().st_size == 2 * MOST_LOG_BYTES


def test_a_link_in_the_place_of_a_draft_leads_nowhere(whole: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in ("token", "stop-reserve"):
        (whole / f".{name}.{os.getpid()}").symlink_to(mine)
    write_content(whole / "token", b"a new token")
    DiskReserve(whole).keep()
    assert mine.read_text() == "mine"
    assert (whole / "token").read_text() == "a new token"
    assert (whole / "stop-reserve").stat().st_size == 1 << 20
    assert not any((whole / name).is_symlink() for name in ("token", "stop-reserve"))


@pytest.mark.parametrize("use", [Store.open, refuse_newer_database])
def test_a_database_behind_a_link_stays_as_it_is(whole: Path, tmp_path: Path, use: Callable[[Path], object]) -> None:
    (tmp_path / "mine").mkdir()
    mine = tmp_path / "mine" / "bookmarks.sqlite"
    with contextlib.closing(sqlite3.connect(mine)) as db:
        db.execute("CREATE TABLE places (address TEXT)")
    before = mine.read_bytes()
    (whole / FILE_NAME).unlink()
    (whole / FILE_NAME).symlink_to(mine)
    with pytest.raises(StoreError, match="is a link"):
        use(whole / FILE_NAME)
    assert mine.read_bytes() == before
    assert list(mine.parent.iterdir()) == [mine]


@pytest.mark.parametrize("use", [Store.open, refuse_newer_database])
def test_a_journal_that_names_a_further_file_deletes_nothing(
    whole: Path, tmp_path: Path, use: Callable[[Path], object]
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    write_foreign_journal(whole / FILE_NAME, mine)
    with pytest.raises(StoreError, match="leads to another file"):
        use(whole / FILE_NAME)
    assert mine.read_text() == "mine"


def test_a_link_in_the_place_of_the_folder_of_logs_makes_no_file_elsewhere(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(whole / "log")
    (tmp_path / "mine").mkdir()
    (whole / "log").symlink_to(tmp_path / "mine")
    assert run(["view", "abcd"]) == 1
    assert "log: is a link; remove it" in " ".join(capsys.readouterr().err.split())
    assert not list((tmp_path / "mine").iterdir())


def test_a_link_in_the_place_of_the_lock_makes_no_file_elsewhere(whole: Path, tmp_path: Path) -> None:
    (whole / "lock").symlink_to(tmp_path / "new")
    with pytest.raises(OSError, match="symbolic links"):
        ManagerLock(whole).acquire()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "command", [["experiment", "show"], ["trial", "ls"], ["experiment", "export"], ["config", "show"]]
)
def test_an_experiment_in_a_folder_that_may_only_be_read_is_read(
    whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """Root may write everywhere, so this looks at how the database is opened, and whether any file is made there."""
    real, connect, opened = os.access, sqlite3.connect, []

    def note(name: str | Path, *words: Any, **more: Any) -> sqlite3.Connection:
        opened.append((str(name), sorted(whole.iterdir())))
        return connect(name, *words, **more)

    monkeypatch.setattr(os, "access", lambda path, mode: mode & os.W_OK == 0 and real(path, mode))
    monkeypatch.setattr(sqlite3, "connect", note)
    before = sorted(whole.iterdir())
    assert run([*command, "abcd"]) == 0
    assert capsys.readouterr().err == ""
    there = [(name, files) for name, files in opened if FILE_NAME in name]
    assert there
    assert all(files == before and name.endswith("?mode=ro&immutable=1") for name, files in there)
