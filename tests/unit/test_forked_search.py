"""A process forked while another thread of its parent is at work in a `Search`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnilite import Search
from nnilite.errors import Conflict

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.version_info >= (3, 12), reason="forks of programs with threads are warned of"),
    # A stand-in of another test in this process may have loaded eventlet, which warns of each fork.
    pytest.mark.filterwarnings("ignore:Using fork"),
]


@contextmanager
def at_work(search: Search) -> Iterator[None]:
    """Have a thread in the middle of its turn."""
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        with search._turn():
            begun.set()
            over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def is_true_in_a_fork(question: Callable[[], bool]) -> bool:
    if not (child := os.fork()):
        try:
            os._exit(question())
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


@pytest.mark.parametrize("stored", [False, True])
def test_it_is_told_to_make_a_search_of_its_own(stored: bool, tmp_path: Path) -> None:
    def is_told() -> bool:
        try:
            search.ask()
        except Conflict as error:
            return "Make a Search here" in str(error)
        return False

    search = Search(SPACE, "Random", storage=tmp_path / "kept" if stored else None)
    with at_work(search):
        assert is_true_in_a_fork(is_told)
    assert search.ask().id == "0"
    assert is_true_in_a_fork(lambda: search.ask().id == "1")


def test_it_does_not_keep_the_storage_locked(tmp_path: Path) -> None:
    def has_left_it() -> bool:
        return "search.lock" not in {path.resolve().name for path in Path("/proc/self/fd").iterdir()}

    search = Search(SPACE, "Random", storage=tmp_path / "kept")
    with at_work(search):
        assert not has_left_it()
        assert is_true_in_a_fork(has_left_it)
