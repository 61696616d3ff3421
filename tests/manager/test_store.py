"""The experiment's database: what is committed is there again, and what is not ours is refused."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite._manager import steps as s
from nnilite._manager.store import SCHEMA_VERSION, Store
from nnilite.errors import StoreError
from nnilite.records import Attempt, ExperimentState, Metric, MetricKind, Trial, TrialState
from nnilite.tuner import Call

FILE = "it's $HOME; a\n.sqlite"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with contextlib.closing(Store.create(path, "abc", 1.0)) as store:
        yield store


def reopened(path: Path) -> Store:
    store = Store(path)
    store.open()
    return store


def trial(sequence: int, **changes: object) -> Trial:
    return Trial(id=f"t{sequence}", sequence=sequence, parameters={"x": [1, None]}, parameter_id=sequence, **changes)  # type: ignore[arg-type]


def test_trials_that_have_not_ended_come_back_with_their_attempt_and_last_result(store: Store) -> None:
    running = trial(0, state=TrialState.RUNNING, attempt=1)
    attempts = [
        Attempt("t0", 0, state="LOST"),
        Attempt("t0", 1, "local", {"pid": 7}, "RUNNING", cancel="EARLY_STOPPED"),
    ]
    metric = Metric("t0", 1, 0, MetricKind.PERIODICAL, 0, {"default": 0.5}, 2.0)
    store.write([s.SaveTrial(running), *map(s.SaveAttempt, attempts), s.SaveMetric(metric)])
    store.close()
    with contextlib.closing(reopened(store.path)) as again:
        snapshot = again.snapshot(maximize=True)
    assert snapshot.live == (s.LiveTrial(running, attempts[1], {"default": 0.5}, 1, lost=1, failed=0),)


def test_numbers_go_on_and_do_not_begin_again(store: Store) -> None:
    store.write([s.SaveTrial(trial(4, state=TrialState.SUCCEEDED)), s.SaveCall(9, Call("generate", 4, "t4"))])
    store.close()
    with contextlib.closing(reopened(store.path)) as again:
        snapshot = again.snapshot(maximize=True)
    assert (snapshot.next_sequence, snapshot.next_parameter_id, snapshot.calls) == (5, 5, 9)


@pytest.mark.parametrize(("maximize", "best"), [(True, "t2"), (False, "t1")])
def test_the_best_trial_is_found_among_finite_results(store: Store, maximize: bool, best: str) -> None:
    values = [math.nan, 0.1, {"default": 3, "loss": 9}, math.inf, "text", 0.1, 3]  # of equals the first
    ended = [trial(i, state=TrialState.SUCCEEDED, value=value) for i, value in enumerate(values)]
    store.write([s.SaveTrial(t) for t in ended])
    found = store.snapshot(maximize).best
    assert found is not None
    assert found.id == best


def test_calls_come_back_with_the_parameters_of_their_trial(store: Store) -> None:
    calls = [Call("generate", 0, "t0", {"x": [1, None]}), Call("result", 0, "t0", {"x": [1, None]}, 0.5)]
    calls += [
        Call("end", 0, "t0", {"x": [1, None]}, success=True),
        Call("import", value=[{"parameter": 1, "value": 2}]),
    ]
    store.write([s.SaveTrial(trial(0)), *(s.SaveCall(i, call) for i, call in enumerate(calls, 1))])
    assert store.calls(99) == calls
    assert store.calls(2) == calls[:2]


def test_a_removal_is_owed_until_it_is_done(store: Store) -> None:
    ended = Attempt("t0", 0, "local", {"pid": 7}, "FAILED")
    store.write([s.SaveTrial(trial(0)), s.SaveAttempt(ended), s.SaveRemoval("t0", 0, owed=True)])
    assert store.snapshot(True).removals == (ended,)
    store.write([s.SaveRemoval("t0", 0, owed=True), s.SaveRemoval("t0", 0, owed=False)])
    assert store.snapshot(True).removals == ()


def test_limits_that_the_user_changed_win_over_the_config(store: Store) -> None:
    store.write([s.SaveExperiment(ExperimentState.RUNNING, "", 3.0, None, s.Settings(7, max_trials=9))])
    assert store.settings(s.Settings(1, silence_s=5.0)) == s.Settings(7, max_trials=9, silence_s=5.0)


def test_a_write_that_fails_leaves_nothing_behind(store: Store) -> None:
    metric = Metric("t0", 0, 0, MetricKind.FINAL, 0, 1.0, 1.0)
    with pytest.raises(StoreError):
        store.write([s.SaveTrial(trial(0)), s.SaveMetric(metric), s.SaveMetric(metric)])
    assert store.snapshot(True).next_sequence == 0


def test_a_locked_database_is_busy_not_broken(store: Store) -> None:
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked by another program") as caught:
        store.write([s.SaveTrial(trial(0))])
    assert caught.value.busy
    other.execute("ROLLBACK")
    other.close()
    store.write([s.SaveTrial(trial(0))])


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(StoreError, match="not an experiment of nnilite"):
        reopened(path)


def test_a_damaged_database_is_told(path: Path) -> None:
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreError, match="damaged or not a database"):
        reopened(path)


def test_a_database_of_a_newer_nnilite_is_refused(path: Path) -> None:
    Store.create(path, "abc", 1.0).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(StoreError, match="newer nnilite"):
        reopened(path)


def test_a_full_disk_is_busy_not_broken(store: Store) -> None:
    assert store._db is not None
    store._db.execute("PRAGMA max_page_count = 12")  # SQLite's own way to run out of space
    many = [s.SaveTrial(trial(i, reason="x" * 1000)) for i in range(100)]
    with pytest.raises(StoreError, match="free some disk space") as caught:
        store.write(many)
    assert caught.value.busy


def test_an_older_database_is_brought_up_to_date_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.create(path, "abc", 1.0).close()
    monkeypatch.setattr("nnilite._manager.store.SCHEMA_VERSION", SCHEMA_VERSION + 2)
    first, second = "ALTER TABLE meta ADD COLUMN a TEXT", "ALTER TABLE meta ADD COLUMN b TEXT"
    steps = {SCHEMA_VERSION: first, SCHEMA_VERSION + 1: second}
    monkeypatch.setattr("nnilite._manager.store._MIGRATIONS", steps)
    for _ in range(2):
        reopened(path).close()
    with sqlite3.connect(path) as db:
        assert [row[1] for row in db.execute("PRAGMA table_info(meta)")] == ["key", "value", "a", "b"]
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 2,)
    db.close()


def test_a_database_without_removals_gets_them(path: Path) -> None:
    Store.create(path, "abc", 1.0).close()
    with sqlite3.connect(path) as db:
        db.executescript("DROP TABLE removals; PRAGMA user_version = 1")
    db.close()
    with contextlib.closing(reopened(path)) as store:
        assert store.snapshot(True).removals == ()


def test_a_migration_that_fails_leaves_the_database_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.create(path, "abc", 1.0).close()
    monkeypatch.setattr("nnilite._manager.store.SCHEMA_VERSION", SCHEMA_VERSION + 1)
    broken = "ALTER TABLE meta ADD COLUMN a TEXT; ALTER TABLE nothing ADD COLUMN b TEXT"
    monkeypatch.setattr("nnilite._manager.store._MIGRATIONS", {SCHEMA_VERSION: broken})
    with pytest.raises(StoreError):
        reopened(path)
    with sqlite3.connect(path) as db:
        assert [row[1] for row in db.execute("PRAGMA table_info(meta)")] == ["key", "value"]
    db.close()
