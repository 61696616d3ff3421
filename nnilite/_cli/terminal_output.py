"""Shows what a trial has printed on a terminal, without the trial controlling the terminal.

Of its control sequences, only colours and the erasing of a line pass. Others are shown as text, such as `\\x1b`. What
goes into a file or a pipe stays as it is.
"""

from __future__ import annotations

import codecs
import re
from typing import BinaryIO, Protocol, TextIO

from nnilite._logging.terminal_text import escape_control

# The beginning of a sequence whose end may come with the next piece.
_BEGUN = re.compile(r"\x1b(\[[0-9;:]{0,32})?\Z")


class TrialOutput:
    """Writes bytes of a trial to standard output or standard error; flush it at the end."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace") if target.isatty() else None
        self._begun = ""

    def write(self, data: bytes) -> None:
        """Write a piece, which may end anywhere."""
        if self._decoder is None:
            self._target.write(data)
            return
        text = self._begun + self._decoder.decode(data)
        begun = _BEGUN.search(text)
        self._begun = begun[0] if begun else ""
        self._target.write(escape_control(text[: len(text) - len(self._begun)]).encode())

    def flush(self) -> None:
        self._target.flush()


def guard_terminal(target: TextIO) -> SupportsWrite:
    """Return what to write texts of trials to: a terminal gets them escaped, a file or a pipe as they are."""
    return _EscapedText(target) if target.isatty() else target


class SupportsWrite(Protocol):
    """Anything that takes text."""

    def write(self, text: str, /) -> object: ...


class _EscapedText:
    def __init__(self, target: TextIO) -> None:
        self._target = target

    def write(self, text: str, /) -> object:
        return self._target.write(escape_control(text))
