"""Shows what a trial has printed on a terminal, without the trial controlling the terminal.

A terminal obeys what it prints: control sequences set its title, write to the clipboard, move the cursor over earlier
lines, or make the terminal type an answer. Of these, only colours and the erasing of a line pass. Others are shown as
text, such as `\\x1b`. What goes into a file or a pipe stays as it is.
"""

from __future__ import annotations

import codecs
import re
from typing import BinaryIO

_CONTROL = re.compile(r"\x1b\[[0-9;:]{0,32}[mK]|[\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f]")
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
        self._target.write(harmless(text[: len(text) - len(self._begun)]).encode())

    def flush(self) -> None:
        self._target.flush()


def harmless(text: str) -> str:
    r"""Return a text with all control characters escaped that do more than colour or erase a line.

    >>> print(ascii(harmless("\x1b[31mred\x1b[0m\x1b]0;title\x07")))
    '\x1b[31mred\x1b[0m\\x1b]0;title\\x07'
    """
    return _CONTROL.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    control = found[0]
    return control if len(control) > 1 else f"\\x{ord(control):02x}"
