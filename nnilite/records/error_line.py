"""Finds the line of a trial's last output that says why it failed."""

from __future__ import annotations

import re

# Those of an exception group have a mark before them.
_FRAME = re.compile(r'((?: *\| )?) +File ".*", line \d+')


def find_error_line(text: str) -> str:
    """Return the exception of the last Python traceback in a text, else its last line; "" if the text is blank.

    The messages of many libraries, such as PyTorch and scikit-learn, have several lines and end with general advice.

    >>> find_error_line('  File "train.py", line 3, in <module>\\nValueError: NaN in the input\\nSee the user guide\\n')
    'ValueError: NaN in the input'
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    frames = [(number, found[1]) for number, line in enumerate(lines) if (found := _FRAME.match(line))]
    if frames:
        last, mark = frames[-1]
        for line in lines[last + 1 :]:
            unmarked = line[len(mark) :] if line.startswith(mark) else line
            if unmarked and not unmarked[0].isspace():  # the lines of a frame are indented
                return unmarked
    return lines[-1].strip() if lines else ""
