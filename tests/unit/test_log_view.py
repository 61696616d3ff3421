"""The log of a manager on the standard error of a program that runs an experiment."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from nnilite._running.log_view import LogView

LINE = "a library says \x1b]0;title\x07\n"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "shown"), [(Screen(), "a library says \\x1b]0;title\\x07\n"), (io.StringIO(), LINE)]
)
def test_a_terminal_obeys_no_control_character_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, shown: str
) -> None:
    (tmp_path / "manager.log").write_text(LINE)
    monkeypatch.setattr("sys.stderr", stream)
    view = LogView(tmp_path / "manager.log")
    view.start()
    view.end()
    assert stream.getvalue() == shown
