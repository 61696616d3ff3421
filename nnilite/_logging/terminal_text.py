"""Text of trials for a terminal, which would obey it, and for a log.

Control sequences set its title, write to the clipboard, move the cursor over earlier lines, or make the terminal type
an answer.
"""

from __future__ import annotations

import logging
import re

from nnilite._unprintable import escape_unprintable

# The last ones change the order of what is read.
_CONTROL = re.compile(r"\x1b\[[0-9;:]{0,32}[mK]|[\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def escape_control(text: str) -> str:
    r"""Return a text with all control characters escaped that do more than colour or erase a line.

    >>> print(ascii(escape_control("\x1b[31mred\x1b[0m\x1b]0;title\x07")))
    '\x1b[31mred\x1b[0m\\x1b]0;title\\x07'
    """
    return _CONTROL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    control = match[0]
    return control if len(control) > 1 else control.encode("unicode_escape").decode()


class TerminalFormatter(logging.Formatter):
    """Formats records for a terminal: their texts may come from other machines and people."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_control(super().format(record))


class LogFormatter(logging.Formatter):
    r"""Formats records for a log file: texts of strangers in a record look like no other record, and hide none.

    >>> record = logging.LogRecord("a", logging.INFO, "a.py", 1, "it says: %s", ("no\n[2026] INFO yes\x1b[8m",), None)
    >>> print(LogFormatter("%(message)s").format(record))
    it says: no
        [2026] INFO yes\x1b[8m
    """

    def format(self, record: logging.LogRecord) -> str:
        return escape_unprintable(super().format(record)).replace("\n", "\n    ")
