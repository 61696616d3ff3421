"""What pages remember for their user: columns of tables and named views, in one file for all experiments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nnilite._experiments import page_preferences
from nnilite._experiments.locking import hold
from nnilite._experiments.page_preferences import PagePreferences, keep_columns, keep_view, read
from nnilite.errors import ConfigError, Conflict, DamagedFile


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "home of 'all' $HOME"
    monkeypatch.setenv("NNILITE_HOME", str(found))
    return found


def test_columns_and_views_are_kept_until_they_are_taken_away() -> None:
    assert read() == PagePreferences()
    keep_columns("trials x", ["sequence", "p.x"])
    keep_view("abc", " failed ones ", "trials?state=FAILED")
    keep_view("abc", "all", "trials")
    keep_view("ui", "all", "overview")
    assert read().columns == {"trials x": ["sequence", "p.x"]}
    assert read().views["abc"] == {"failed ones": "trials?state=FAILED", "all": "trials"}
    keep_columns("trials x", [])
    keep_view("abc", "all", "")
    keep_view("ui", "all", "")
    assert read() == PagePreferences(views={"abc": {"failed ones": "trials?state=FAILED"}})


def test_columns_are_kept_for_parameters_of_any_name() -> None:
    table, columns = "trials a\nb,lr ", ["p.a\nb", "p.lr ", " "]
    keep_columns(table, columns)
    assert read().columns == {table: columns}


@pytest.mark.parametrize(
    ("keep", "given", "field"),
    [
        (keep_columns, ("trials", "x"), "columns"),
        (keep_columns, ("trials", ["a", ""]), "columns"),
        (keep_columns, ("trials", ["\ud800"]), "columns"),
        (keep_columns, ("trials", ["a"] * 501), "columns"),
        (keep_columns, ("", ["a"]), "table"),
        (keep_view, ("abc", "\ud800", "trials"), "name"),
        (keep_view, ("abc", "n" * 81, "trials"), "name"),
        (keep_view, ("abc", "name", "trials\x00"), "address"),
        (keep_view, ("abc", "name", "a" * 8001), "address"),
        (keep_view, (["abc"], "name", "trials"), "place"),
    ],
)
def test_what_is_no_column_or_view_is_refused_with_its_field(keep: Any, given: Any, field: str, home: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        keep(*given)
    assert refused.value.place.field == field
    assert not home.exists()


def test_the_file_stays_small() -> None:
    for number in range(page_preferences._TABLES_MAX + 1):
        keep_columns(f"table {number}", ["a"])
    assert next(iter(read().columns)) == "table 1", "the one that was chosen first is dropped"
    for number in range(page_preferences.VIEWS_MAX):
        keep_view("abc", f"view {number}", "trials")
    with pytest.raises(ConfigError, match="remove one of them first"):
        keep_view("abc", "one more", "trials")
    keep_view("abc", "view 1", "charts")


def test_the_file_never_grows_larger_than_it_can_be_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_preferences, "_MOST_BYTES", 3000)
    for number in range(4):
        keep_columns(f"table {number}", ["c" * 500])
        keep_view(f"place {number}", "best", "a" * 900)
    assert list(read().views) == ["place 3"], "places that were changed first are dropped"
    assert list(read().columns) == ["table 1", "table 2", "table 3"]
    assert sum(path.stat().st_size for path in home.rglob("memory.json")) <= 3000


@pytest.mark.parametrize("content", ["no JSON", "[]", '{"views": {"abc": {"a": 1}}}', '{"columns": {"t": ["a", 1]}}'])
def test_a_damaged_file_is_named_with_its_cure_and_not_overwritten(content: str, home: Path) -> None:
    page_preferences.folder().mkdir(parents=True)
    (path := page_preferences.folder() / "memory.json").write_text(content)
    for ask in (read, lambda: keep_columns("trials", ["a"])):
        with pytest.raises(DamagedFile, match="remove it: only the named views"):
            ask()
    assert path.read_text() == content


def test_changes_wait_for_each_other_for_a_moment(home: Path) -> None:
    keep_columns("trials", ["a"])
    with hold(page_preferences.folder() / "lock"), pytest.raises(Conflict, match="try again"):
        keep_columns("trials", ["b"])
    assert read().columns == {"trials": ["a"]}


@pytest.mark.process
def test_several_processes_lose_no_change_of_another() -> None:
    code = (
        "import sys\nfrom nnilite._experiments.page_preferences import keep_view\nfrom nnilite.errors import Conflict\n"
        "left = [f'{sys.argv[1]} {number}' for number in range(15)]\n"
        "while left:\n"
        "    try: keep_view('abc', left[-1], 'trials')\n"
        "    except Conflict: continue  # the other one was at it for too long\n"
        "    left.pop()\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, name]) for name in ("one", "two")]
    assert [one.wait(60) for one in running] == [0, 0]
    assert len(read().views["abc"]) == 30
