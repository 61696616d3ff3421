"""Only tests that carry the marker `process` start a process, so that `make check` can leave them out.

The audit hook cannot be removed again (see `sys.addaudithook`), therefore there is one for the whole run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"}

_started: list[str] = []


def _note(event: str, arguments: tuple[Any, ...], starts: set[str] = STARTS) -> None:
    if event in starts:  # Python's end leaves no name of a module, and still calls this
        _started.append(f"{event}{arguments[:2]!r}"[:200])


sys.addaudithook(_note)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    del _started[:]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    # What follows may be the end of fixtures that other tests have made, with processes of theirs.
    started = _started[:1]
    yield
    if started and item.get_closest_marker("process") is None:
        pytest.fail(f"it starts a process, and has no marker `process`: {started[0]}", pytrace=False)
