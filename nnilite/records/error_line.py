"""Finds the line of a trial's last output that says why it failed."""

from __future__ import annotations

import re

# The lines of an exception group have a mark before them, and those of PyTorch's ranks.
_MARK = r"(?: *\| |\[rank\d+\]: )?"
_FRAME = re.compile(rf'({_MARK}) +File ".*", line \d+(?:, in |$)')
_NAMED = re.compile(rf"{_MARK}([\w.]+(?:Error|Exception)(?:: .*)?)$")
# What torchrun and accelerate raise themselves once the program that they run has failed.
_OF_A_LAUNCHER = re.compile(r"[\w.]*(?:ChildFailedError|CalledProcessError)\b")
_FATAL = "Fatal Python error: "


def find_error_line(text: str) -> str:
    """Return the exception of the last Python traceback in a text, else its last line; "" if the text is blank.

    The messages of many libraries, such as PyTorch and scikit-learn, have several lines and end with general advice.

    >>> find_error_line('  File "train.py", line 3, in <module>\\nValueError: NaN in the input\\nSee the user guide\\n')
    'ValueError: NaN in the input'
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(_FATAL)] or _find_exceptions(lines)
    own = [error for error in errors if not _OF_A_LAUNCHER.match(error)]
    if errors and not own:  # the traceback of the program is cut off
        named = [match[1] for line in lines if (match := _NAMED.match(line))]
        own = [error for error in named if not _OF_A_LAUNCHER.match(error)]
    candidates = own or errors or [line.strip() for line in lines]
    return candidates[-1] if candidates else ""


def _find_exceptions(lines: list[str]) -> list[str]:
    """Return what follows the frames of each traceback."""
    exceptions = []
    mark: str | None = None  # mark of the previous frame
    for line in lines:
        if frame := _FRAME.match(line):
            mark = frame[1]
        elif mark is not None:
            unmarked = line[len(mark) :] if line.startswith(mark) else line
            if unmarked and not unmarked[0].isspace():  # the lines of a frame are indented
                exceptions.append(unmarked)
                mark = None
    return exceptions
