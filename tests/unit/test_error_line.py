"""Which line of a failed trial's output is shown."""

from __future__ import annotations

import sys
import traceback

import pytest

from harness.failure_outputs import FAILURES
from nnilite._cli import screen
from nnilite.records import find_error_line


@pytest.mark.parametrize(("text", "line"), FAILURES.items())
def test_the_line_that_says_what_went_wrong_is_found(text: str, line: str) -> None:
    assert find_error_line(text) == line
    first, *more = text.splitlines()
    assert screen.brief(text) == (f"{first}: {line}" if more else line)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_of_nothing_there_is_no_line(text: str) -> None:
    assert find_error_line(text) == ""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has groups of exceptions since 3.11")
def test_of_a_group_of_exceptions_the_last_one_is_found() -> None:
    group = eval("ExceptionGroup('both', [ValueError('one'), OSError('disk is gone\\nfor ever')])")
    for error in group.exceptions:
        with pytest.raises(type(error)):  # it gets its frames
            raise error
    with pytest.raises(Exception) as raised:  # noqa: PT011  only Python 3.11 has its name
        raise group
    assert find_error_line("".join(traceback.format_exception(raised.value))) == "OSError: disk is gone"
