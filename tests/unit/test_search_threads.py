"""One `Search` in several threads of a program."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from nnilite import Search
from nnilite._search import journal
from nnilite.errors import Conflict

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


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
    take, waits = journal._Lock.take, threading.Event()

    def take_later(lock: journal._Lock) -> None:
        waits.set()
        take(lock)

    search = Search(SPACE, "Random", storage=tmp_path / "kept")
    other = threading.Thread(target=search.run, args=(lambda parameters: parameters["x"], 1))
    with search._turn():
        monkeypatch.setattr(journal._Lock, "take", take_later)
        other.start()
        waits.wait()
        with pytest.raises(Conflict, match="a signal handler that interrupts it cannot ask"):
            search.ask()
    other.join()
    assert len(search.result()) == 1
