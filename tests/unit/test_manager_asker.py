"""The thread in which the hub asks managers."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest

from nnilite._experiments.registry import RegistryEntry
from nnilite._hub.digests import _ManagerAsker


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_that_ends_the_thread_does_not_end_the_asking(tmp_path: Path) -> None:
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()

    def ask(entry: RegistryEntry) -> None:
        asked.put(entry.id)
        if entry.id == "first":
            raise MemoryError

    asker = _ManagerAsker(ask)
    asker.put(RegistryEntry("first", "", tmp_path))
    assert asked.get(timeout=60) == "first"
    assert asker._thread is not None
    asker._thread.join(60)
    asker.put(RegistryEntry("second", "", tmp_path))
    assert asked.get(timeout=60) == "second"
    asker.close()
