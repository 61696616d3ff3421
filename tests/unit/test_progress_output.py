"""Progress that nobody can see, or reads any more, ends no search."""

from __future__ import annotations

import errno
import io
import sys

import pytest

from nnilite._notebook.live_output import write_line
from nnilite.search import Search


def test_a_program_without_standard_error_searches_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    search = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, "Random")
    assert len(search.run(lambda parameters: parameters["x"], trials=3, progress=True).trials) == 3


class Unread(io.StringIO):
    """A pipe that nobody reads."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, text)


def test_a_line_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Unread())
    write_line("1/2 trials ended")
