"""The line that shows how far a long work is: when there is one, what it says, and that it goes away."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import pytest

from nnilite import codedir
from nnilite._cli import create, progress_line
from nnilite._cli.nnictl import run, warn
from nnilite.testing import eventually

TAKEN_AWAY = "\x1b[1A\x1b[2K"
"""One line up, and that line is emptied."""


class Terminal(io.StringIO):
    """Keeps what a program shows on a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal for standard error, and work that counts as long at once."""
    monkeypatch.setattr(progress_line, "PATIENCE_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What commands say of their work when it has gone as far as was expected, at the end of each part."""
    said: list[str] = []

    class Heard(progress_line.Work):
        def goes_on(self, name: str) -> None:
            said.append(f"{self.name}: {self.done == self.total > 0}")
            super().goes_on(name)

    @contextmanager
    def shown(name: str, tell: object = progress_line.SIZE, *, quiet: bool = False) -> Iterator[progress_line.Work]:
        work = Heard(name, progress_line.SIZE)
        yield work
        said.append(f"{work.name}: {work.done == work.total > 0}, {'quiet' if quiet else 'shown'}")

    monkeypatch.setattr(progress_line, "shown", shown)
    return said


def test_a_long_work_is_shown_until_it_ends(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress_line.shown("Saving") as work:
        work.expect(4 << 20)
        work.advance(1 << 20)
        eventually(lambda: "Saving" in terminal.getvalue() and "1 MB of 4 MB" in terminal.getvalue())
    assert terminal.getvalue().endswith(TAKEN_AWAY)
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")  # the cursor is back


def test_an_interrupted_work_leaves_a_clean_line(terminal: Terminal) -> None:
    def interrupted() -> None:
        with progress_line.shown("Saving"):
            eventually(lambda: "Saving" in terminal.getvalue())
            raise KeyboardInterrupt

    with redirect_stderr(terminal), pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().endswith(TAKEN_AWAY)


def test_warnings_stay_readable_above_the_line(terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        with progress_line.shown("Saving"):
            eventually(lambda: "Saving" in terminal.getvalue())
            warn("a link is left out.")
            eventually(lambda: "WARNING: a link is left out." in terminal.getvalue())
        assert sys.stderr is terminal


def test_a_quick_work_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "PATIENCE_S", 3600.0)
    with redirect_stderr(terminal), progress_line.shown("Saving"):
        pass
    assert terminal.getvalue() == ""


def test_neither_a_pipe_nor_json_shows_progress(terminal: Terminal) -> None:
    pipe = io.StringIO()
    before = set(threading.enumerate())
    with redirect_stderr(terminal), progress_line.shown("Saving", quiet=True):
        assert set(threading.enumerate()) <= before  # nothing waits to show it
    with redirect_stderr(pipe), progress_line.shown("Saving"):
        assert set(threading.enumerate()) <= before
    assert (terminal.getvalue(), pipe.getvalue()) == ("", "")


def test_the_words_tell_what_is_known() -> None:
    work = progress_line.Work("Exporting", progress_line.format_trials)
    assert work.progress().endswith("s")
    work.expect(10)
    work.advance(5)
    assert work.progress().startswith("5 trials of 10 trials")  # and what is left, on a slow machine
    work.goes_on("Checking")
    assert (work.name, work.total, work.done) == ("Checking", 0, 0)


def test_saving_and_loading_count_all_bytes(whole: Path, tmp_path: Path, works: list[str]) -> None:
    assert run(["experiment", "save", "abcd", "-p", str(tmp_path / "a.zip"), "-s"]) == 0
    assert run(["experiment", "delete", "abcd", "-y", "--json"]) == 0
    assert run(["experiment", "load", "-p", str(tmp_path / "a.zip")]) == 0
    assert works == [
        "Saving: True, shown",
        "Deleting abcd: False, quiet",
        "Unpacking: True",
        "Checking: False, shown",
    ]


def test_an_export_counts_the_trials(whole: Path, tmp_path: Path, works: list[str]) -> None:
    for more in ([], ["--json"]):
        assert run(["experiment", "export", "abcd", "-f", str(tmp_path / "a.csv"), *more]) == 0
    assert works == ["Exporting: True, shown", "Exporting: True, quiet"]


def test_packing_tells_how_far_it_is(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "large").write_bytes(b"x" * (3 << 20))
    heard: list[tuple[int, int]] = []
    codedir.pack(code, tmp_path / "cache", progress=lambda *amounts: heard.append(amounts))
    assert heard == sorted(heard)
    assert heard[-1] == (6 << 20, 6 << 20)


def test_the_packing_of_a_manager_is_shown_and_then_the_rest_of_its_start() -> None:
    work = progress_line.Work("Starting", progress_line.SIZE)
    create.packed(work, 5 << 20, 10 << 20)
    assert (work.name, work.progress()) == ("Packing the code", "5 MB of 10 MB")
    create.packed(work, 10 << 20, 10 << 20)
    assert (work.name, work.total) == ("Starting", 0)
