"""Which line of a failed trial's output is shown."""

from __future__ import annotations

import sys
import traceback

import pytest

from nnilite._cli import screen
from nnilite.records import find_error_line

FRAME = '  File "train.py", line 3, in <module>\n    fit(x)\n    ~~~^^^\n'
CASES = {
    "": "",
    "killed by signal 9": "killed by signal 9",
    "exit code 1\nno data\n": "no data",
    f"exit code 1\nTraceback (most recent call last):\n{FRAME}KeyError: 'lr'": "KeyError: 'lr'",
    # The advice of PyTorch and scikit-learn, and what programs print after a traceback.
    f"exit code 1\n{FRAME}RuntimeError: CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`\n": (
        "RuntimeError: CUDA error: out of memory"
    ),
    f"{FRAME}ValueError: Input X contains NaN.\nSee\n    https://scikit-learn.org\n\n1 leaked semaphore\n": (
        "ValueError: Input X contains NaN."
    ),
    # The second of a chain is the one that ended the program.
    f"{FRAME}KeyError: 'a'\n\nDuring handling of it, another occurred:\n\n{FRAME}OSError: gone\n": "OSError: gone",
    # The beginning of a long traceback is cut off, or its end.
    f"{FRAME}  [Previous line repeated 990 more times]\nRecursionError: too deep": "RecursionError: too deep",
    FRAME: "~~~^^^",
}


@pytest.mark.parametrize(("text", "line"), CASES.items())
def test_the_line_that_says_what_went_wrong_is_found(text: str, line: str) -> None:
    assert find_error_line(text) == line


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has groups of exceptions since 3.11")
def test_of_a_group_of_exceptions_the_last_one_is_found() -> None:
    group = eval("ExceptionGroup('both', [ValueError('one'), OSError('disk is gone\\nfor ever')])")
    for index, error in enumerate(group.exceptions):
        try:
            raise error
        except Exception:  # noqa: BLE001  each gets its frames
            assert index < 2
    try:
        raise group
    except Exception:  # noqa: BLE001
        assert find_error_line(traceback.format_exc()) == "OSError: disk is gone"


def test_a_trial_is_shown_with_its_error_and_not_with_the_advice_that_follows() -> None:
    text = f"exit code 1\nTraceback (most recent call last):\n{FRAME}ValueError: Input X contains NaN.\nSee the guide"
    assert screen.brief(text) == "exit code 1: ValueError: Input X contains NaN."
