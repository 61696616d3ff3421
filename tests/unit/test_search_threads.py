"""One `Search` in several threads of a program."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nnilite import Search
from nnilite._search import journal
from nnilite.errors import Conflict
from nnilite.testing import eventually

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}

DAEMON = """
import atexit, sys, threading
begun, over = threading.Event(), threading.Event()

def at_the_end():  # after what nnilite does then, as it was registered before
    over.set()
    thread.join()

atexit.register(at_the_end)
from nnilite import Search
from nnilite.tuner import Tuner

class Slow(Tuner):
    def update_search_space(self, search_space): pass
    def receive_trial_result(self, *_, **__): pass
    def generate_parameters(self, parameter_id, **_):
        begun.set()
        over.wait()
        return {"x": 0.5}

def ask():
    search.ask()
    print("its trial has begun")

search = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, Slow(), storage=sys.argv[1])
thread = threading.Thread(target=ask, daemon=True)
thread.start()
begun.wait()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("storage", [None, "kept"])
def test_what_another_thread_does_while_a_search_is_pickled_changes_nothing_in_it(
    tmp_path: Path, storage: str | None
) -> None:
    search = Search(SPACE, "Random", storage=storage and tmp_path / storage)
    trial = search.ask()
    search.report(trial, 1.0)
    pickled = search.__getstate__()
    search.report(trial, 2.0)
    search.tell(search.ask(), 3.0)
    search.enqueue({"x": 0.5})
    assert pickled["_reported"] == {trial.id: [1.0]}
    assert (list(pickled["_trials"]), len(pickled["_calls"]), pickled["_first"]) == ([trial.id], 1, [])
    assert search._journal is None or pickled["_journal"]._seen != search._journal._seen


def test_a_signal_handler_is_refused_also_while_another_thread_waits_for_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "TURN_TIMEOUT_S", 2.0)  # how long the handler would wait for itself
    search = Search(SPACE, "Random", storage=tmp_path / "kept")
    assert search._journal is not None
    turns = search._journal._turns
    other = threading.Thread(target=search.run, args=(lambda parameters: parameters["x"], 1))
    with search._turn():
        other.start()
        eventually(lambda: other.ident in turns)
        with pytest.raises(Conflict, match="a signal handler that interrupts it cannot ask"):
            search.ask()
    other.join()
    assert len(search.result()) == 1


@pytest.mark.process
def test_the_end_of_a_program_closes_no_database_that_a_daemon_thread_uses(tmp_path: Path) -> None:
    program = [sys.executable, "-c", DAEMON, str(tmp_path / "kept")]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "its trial has begun\n", "")
