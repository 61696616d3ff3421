"""What a trial prints, on a terminal."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys

import pytest

from nnilite._cli import screen
from nnilite._cli.terminal_output import TrialOutput
from nnilite._logging.terminal_text import TerminalFormatter


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def shown(*pieces: bytes) -> str:
    out = Terminal()
    output = TrialOutput(out)
    for piece in pieces:
        output.write(piece)
    return out.getvalue().decode()


@pytest.mark.parametrize(
    "sequence",
    [
        b"\x1b]0;title\x07",
        b"\x1b]52;c;Y3VybCBldmlsfHNo\x07",  # writes to the clipboard
        b"\x1b[6n",  # makes the terminal type an answer
        b"\x1b[2J",
        b"\x1b[3A",
        b"\x1bP+q544e\x1b\\",
        b"\xc2\x9b6n",  # the same in one character of eight bits
        b"\x00\x0e",
    ],
)
def test_no_sequence_of_a_trial_reaches_the_terminal(sequence: bytes) -> None:
    for cut in range(len(sequence) + 1):
        found = shown(b"a" + sequence[:cut], sequence[cut:] + b"b\n")
        assert not any(mark in found for mark in "\x1b\x07\x9b\x00\x0e")
        assert found.startswith("a\\x")
        assert found.endswith("b\n")


@pytest.mark.parametrize("mark", "\u2028\u202e\u2066")
def test_no_mark_of_a_trial_changes_the_order_of_what_is_read(mark: str) -> None:
    assert shown(f"a{mark}b\n".encode()) == f"a\\u{ord(mark):04x}b\n"


def test_a_worker_shows_texts_of_its_pool_without_their_controls() -> None:
    record = logging.LogRecord("w", logging.WARNING, "w.py", 1, "%s cannot be run", ("nni-\x1b]0;title\x07",), None)
    assert TerminalFormatter("%(message)s").format(record) == r"nni-\x1b]0;title\x07 cannot be run"


@pytest.mark.process
def test_a_stranger_forges_and_hides_no_line_of_a_managers_log() -> None:
    said = "no\\n[2026-01-01 00:00:00] ERROR (nnilite.manager) forged\\r\\x1b[8mhidden"
    start = "import logging; from nnilite._manager.__main__ import configure_logging; configure_logging(False)"
    program = f"{start}; logging.error('{said}')"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    first, second = run.stderr.splitlines()
    assert first.endswith("ERROR (root) no")
    assert second == "    [2026-01-01 00:00:00] ERROR (nnilite.manager) forged\\r\\x1b[8mhidden"


def test_colours_progress_bars_and_letters_of_all_languages_stay() -> None:
    text = "\x1b[1;31mrot\x1b[0m\r 50 %\x1b[K\r100 %\b\t\u4f60\u597d\n".encode()
    for cut in range(len(text)):
        assert shown(text[:cut], text[cut:]).encode() == text


def test_a_file_gets_the_bytes_as_they_are() -> None:
    out = io.BytesIO()
    TrialOutput(out).write(b"\x1b]0;title\x07\xff")
    assert out.getvalue() == b"\x1b]0;title\x07\xff"


def test_json_has_no_character_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"\x9b6n\u202e\x1b": "\ud800\x7fgr\u00fcn"}
    screen.show_json(value)
    told = capsys.readouterr().out
    assert json.loads(told) == value
    assert not any(mark in told for mark in "\x9b\u202e\x1b\x7f")
    assert "gr\u00fcn" in told
