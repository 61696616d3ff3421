"""Text of trials for a terminal, which would obey it.

Control sequences set its title, write to the clipboard, move the cursor over earlier lines, or make the terminal type
an answer.
"""

from __future__ import annotations

import re

_CONTROL = re.compile(r"\x1b\[[0-9;:]{0,32}[mK]|[\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f]")


def escape_control(text: str) -> str:
    r"""Return a text with all control characters escaped that do more than colour or erase a line.

    >>> print(ascii(escape_control("\x1b[31mred\x1b[0m\x1b]0;title\x07")))
    '\x1b[31mred\x1b[0m\\x1b]0;title\\x07'
    """
    return _CONTROL.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    control = found[0]
    return control if len(control) > 1 else f"\\x{ord(control):02x}"
