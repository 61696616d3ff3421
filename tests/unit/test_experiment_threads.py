"""One `Experiment` in several threads of a program."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnilite._experiments.registry import RegistryEntry
from nnilite._running import offline
from nnilite.experiment import Experiment


def test_threads_that_read_a_stopped_experiment_at_once_have_a_reader_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, closed = threading.Barrier(2), []

    @contextmanager
    def opened(entry: RegistryEntry) -> Iterator[object]:
        both.wait(30)
        reader = object()
        try:
            yield reader
        finally:
            closed.append(reader)

    monkeypatch.setattr(offline, "opened", opened)
    experiment = Experiment()
    experiment._entry = RegistryEntry(id="abcd", name="", directory=tmp_path)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: experiment._reader, range(2))
    assert first is second is experiment._reader
    assert closed == []
    experiment._close_folder()
    assert len(closed) == 2


@pytest.mark.process
def test_a_thread_that_reads_after_the_programs_end_is_told_what_to_do(tmp_path: Path) -> None:
    program = """
import threading, sys
from pathlib import Path
from nnilite._experiments.registry import RegistryEntry
from nnilite.experiment import Experiment
experiment = Experiment()
experiment._entry = RegistryEntry(id="abcd", name="", directory=Path(sys.argv[1]))

def read():
    threading.main_thread().join()
    experiment.result()

threading.Thread(target=read).start()
"""
    words = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "or let the main thread wait for the one that reads" in ended.stderr.splitlines()[-1]
