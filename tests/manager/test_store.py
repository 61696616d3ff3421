"""The experiment's database: what is committed is there again, and what is not ours is refused."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import os
import resource
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nnilite._answers.backend import MetricPage, MetricQuery, Results
from nnilite._answers.queries import TrialQuery
from nnilite._engine import messages
from nnilite._rest.nni_api import records
from nnilite._store.async_store import AsyncStore
from nnilite._store.database_schema import SCHEMA, SCHEMA_VERSION
from nnilite._store.integrity import IntegrityCheck
from nnilite._store.notices import find_notices
from nnilite._store.reader import Reader
from nnilite._store.resume_reader import ResumeReader
from nnilite._store.store_errors import translated
from nnilite._store.writer import Store
from nnilite.errors import StoreError
from nnilite.records import (
    Attempt,
    EndCause,
    Exited,
    ExperimentState,
    JobState,
    Metric,
    MetricKind,
    Output,
    Trial,
    TrialState,
)
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
    return Store.open(path)


def trial(sequence: int, **changes: object) -> Trial:
    return Trial(id=f"t{sequence}", sequence=sequence, parameters={"x": [1, None]}, parameter_id=sequence, **changes)  # type: ignore[arg-type]


def test_trials_that_have_not_ended_come_back_with_their_attempt_and_last_result(store: Store) -> None:
    running = trial(0, state=TrialState.RUNNING, attempt=1)
    attempts = [
        Attempt("t0", 0, state=JobState.LOST),
        Attempt("t0", 1, "local", {"pid": 7}, JobState.RUNNING, cancel=TrialState.EARLY_STOPPED),
    ]
    metric = Metric("t0", 1, 0, MetricKind.PERIODICAL, 0, {"default": 0.5}, 2.0)
    store.write([messages.SaveTrial(running), *map(messages.SaveAttempt, attempts), messages.SaveMetric(metric)])
    store.close()
    with contextlib.closing(reopened(store.path)) as again:
        snapshot = again.resume_reader.snapshot(maximize=True)
    assert snapshot.live == (messages.LiveTrial(running, attempts[1], {"default": 0.5}, 1, lost=1),)


def test_numbers_go_on_and_do_not_begin_again(store: Store) -> None:
    store.write(
        [messages.SaveTrial(trial(4, state=TrialState.SUCCEEDED)), messages.SaveCall(9, Call("generate", 4, "t4"))]
    )
    store.close()
    with contextlib.closing(reopened(store.path)) as again:
        snapshot = again.resume_reader.snapshot(maximize=True)
    assert (snapshot.next_sequence, snapshot.next_parameter_id, snapshot.calls) == (5, 5, 9)


@pytest.mark.parametrize(("maximize", "best"), [(True, "t2"), (False, "t1")])
def test_the_best_trial_is_found_among_finite_results(store: Store, maximize: bool, best: str) -> None:
    values = [math.nan, 0.1, {"default": 3, "loss": 9}, math.inf, "text", 0.1, 3]  # of equals the first
    ended = [trial(i, state=TrialState.SUCCEEDED, value=value) for i, value in enumerate(values)]
    store.write([messages.SaveTrial(t) for t in ended])
    found = store.resume_reader.snapshot(maximize).best
    assert found is not None
    assert found.id == best


async def test_what_breaks_a_result_constraint_is_never_the_best(store: Store) -> None:
    broken = ["", "a < 1 (a 2)", "a < 1 (a is not reported)"]
    ended = [trial(i, state=TrialState.SUCCEEDED, value=i, violates=text) for i, text in enumerate(broken)]
    with contextlib.closing(Reader(store.path)) as reader:
        store.write([messages.SaveTrial(t) for t in ended[1:]])
        assert store.resume_reader.snapshot(maximize=True).best is None
        none, lacks = await reader.ask(find_notices, ["default"])
        assert none == "all results so far break resultConstraints (2), so no trial is the best"
        assert lacks.startswith("1 of 2 results lacks a number that resultConstraints need")
        store.write([messages.SaveTrial(ended[0])])
        assert store.resume_reader.snapshot(maximize=True).best == ended[0]
        assert len(await reader.ask(find_notices, ["accuracy", "loss"])) == 1


def test_names_of_a_tuner_that_are_not_in_the_search_space_are_a_notice(store: Store) -> None:
    with contextlib.closing(sqlite3.connect(store.path)) as db:

        def find(*searched: str) -> list[str]:
            return find_notices(
                lambda query, *values: db.execute(query, values).fetchall(), ["a", "b"], False, searched
            )

        own = dataclasses.replace(trial(0, source="customized"), parameters={"mine": 1})
        proposed = dataclasses.replace(trial(1), parameters={"x": 1, "Lr": 2, "TRIAL_BUDGET": 3})
        store.write([messages.SaveTrial(own), messages.SaveTrial(proposed)])
        assert find("x", "lr") == ["the tuner proposes Lr, which is not in the search space; trials get it as proposed"]
        assert find("x", "Lr") == find() == []


def test_notices_are_found_without_a_look_at_every_trial(store: Store) -> None:
    """A page asks for them each second, of 100,000 trials as well."""
    with contextlib.closing(sqlite3.connect(store.path)) as db:

        def rows(query: str, *values: object) -> list[Any]:
            plan = [str(step[3]) for step in db.execute(f"EXPLAIN QUERY PLAN {query}", values)]
            assert all("COVERING INDEX" in step or "PRIMARY KEY" in step for step in plan), plan
            return db.execute(query, values).fetchall()

        store.write([messages.SaveTrial(trial(0, state=TrialState.SUCCEEDED, value=None, violates="a < 1 (a 2)"))])
        assert len(find_notices(rows, ["default"], True, ["y"])) == 3


@pytest.mark.parametrize(("objectives", "found"), [(["default"], 1), (["accuracy", "loss"], 0)])
async def test_succeeded_trials_without_a_number_are_a_notice(store: Store, objectives: list[str], found: int) -> None:
    values = [math.nan, 0.1, [1, 2], None, {"default": 3}]
    ended = [trial(i, state=TrialState.SUCCEEDED, value=value) for i, value in enumerate(values)]
    store.write([*(messages.SaveTrial(t) for t in ended), messages.SaveTrial(trial(5))])
    store.add_remarks(["it learns from A"])
    with contextlib.closing(Reader(store.path)) as reader:
        noted, *more = await reader.ask(find_notices, objectives)
    assert noted == "it learns from A"
    assert [one[:58] for one in more] == ["3 of 5 succeeded trials have no finite number as a final r"][:found]


def test_calls_come_back_with_the_parameters_of_their_trial(store: Store) -> None:
    calls = [Call("generate", 0, "t0", {"x": [1, None]}), Call("result", 0, "t0", {"x": [1, None]}, 0.5)]
    calls += [
        Call("end", 0, "t0", {"x": [1, None]}, success=True),
        Call("import", value=[{"parameter": 1, "value": 2}]),
    ]
    store.write([messages.SaveTrial(trial(0)), *(messages.SaveCall(i, call) for i, call in enumerate(calls, 1))])
    assert store.resume_reader.calls(99) == calls
    assert store.resume_reader.calls(2) == calls[:2]


def test_a_removal_is_pending_until_it_is_done(store: Store) -> None:
    ended = Attempt("t0", 0, "local", {"pid": 7}, JobState.FAILED)
    store.write(
        [messages.SaveTrial(trial(0)), messages.SaveAttempt(ended), messages.SaveRemoval("t0", 0, pending=True)]
    )
    assert store.resume_reader.snapshot(True).removals == (ended,)
    store.write([messages.SaveRemoval("t0", 0, pending=True), messages.SaveRemoval("t0", 0, pending=False)])
    assert store.resume_reader.snapshot(True).removals == ()


def test_limits_that_the_user_changed_win_over_the_config(store: Store) -> None:
    store.write([messages.SaveExperiment(ExperimentState.RUNNING, "", 3.0, None, messages.Settings(7, max_trials=9))])
    assert store.resume_reader.settings(messages.Settings(1, silence_s=5.0)) == messages.Settings(
        7, max_trials=9, silence_s=5.0
    )


def test_limits_of_an_earlier_version_which_had_fewer_are_read(store: Store) -> None:
    """The others are as configured."""
    with sqlite3.connect(store.path, isolation_level=None) as other:
        other.execute("INSERT OR REPLACE INTO meta VALUES ('limits', ?)", ['{"concurrency": 7, "max_trials": null}'])
    other.close()
    assert store.resume_reader.settings(messages.Settings(1, max_trials=5)) == messages.Settings(7)
    wanted = messages.Settings(7, max_slots=3, priority=-1, stop_at_value=-0.5)
    store.write([messages.SaveExperiment(ExperimentState.RUNNING, "", 3.0, None, wanted)])
    assert store.resume_reader.settings(messages.Settings(1)) == wanted


def test_a_write_that_fails_leaves_nothing_behind(store: Store) -> None:
    metric = Metric("t0", 0, 0, MetricKind.FINAL, 0, 1.0, 1.0)
    with pytest.raises(StoreError):
        store.write([messages.SaveTrial(trial(0)), messages.SaveMetric(metric), messages.SaveMetric(metric)])
    assert store.resume_reader.snapshot(True).next_sequence == 0


def test_a_locked_database_is_busy_not_broken(store: Store) -> None:
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked by another program") as caught:
        store.write([messages.SaveTrial(trial(0))])
    assert caught.value.busy
    other.execute("ROLLBACK")
    other.close()
    store.write([messages.SaveTrial(trial(0))])


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
    with pytest.raises(StoreError, match=r"newer nnilite \(schema 99\); update nnilite"), IntegrityCheck(path):
        pass


@pytest.mark.parametrize(
    "what", ["TRIGGER evil AFTER INSERT ON trials BEGIN DELETE FROM metrics; END", "VIEW evil AS SELECT 1"]
)
def test_a_database_with_somebody_elses_triggers_or_views_is_refused(path: Path, what: str) -> None:
    Store.create(path, "abc", 1.0).close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(f"CREATE {what}")
    with pytest.raises(StoreError, match=r"contains the (trigger|view) 'evil', which nnilite did not create"):
        reopened(path)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE meta SET value = 'EVIL' WHERE key = 'state'",
        "UPDATE meta SET value = '{\"concurrency\": \"x\"}' WHERE key = 'limits'",
        "UPDATE meta SET value = '{\"of_a_newer_version\": 1}' WHERE key = 'limits'",
        "UPDATE trials SET state = 'EVIL'",
        "UPDATE attempts SET handle = '" + "[" * 100_000 + "'",
    ],
)
def test_rows_that_nnilite_does_not_write_are_told_at_a_resume(store: Store, change: str) -> None:
    experiment = messages.SaveExperiment(ExperimentState.RUNNING, "", 3.0, None, messages.Settings(7))
    store.write([experiment, messages.SaveTrial(trial(0)), messages.SaveAttempt(Attempt("t0", 0, handle={}))])
    store.file.db.execute(change)
    read = store.resume_reader.settings if "limits" in change else store.resume_reader.snapshot
    with pytest.raises(StoreError, match=r"contains data that nnilite does not write.*newer nnilite.*update"):
        read(messages.Settings(1))  # type: ignore[operator]


def test_only_the_last_manager_that_claims_a_database_can_write(store: Store) -> None:
    store.claim()
    store.write([messages.SaveTrial(trial(0))])
    with contextlib.closing(reopened(store.path)) as second:
        second.claim()
        with pytest.raises(StoreError, match="taken over by another manager") as caught:
            store.write([messages.SaveTrial(trial(1))])
        assert not caught.value.busy
        second.write([messages.SaveTrial(trial(2))])
        assert second.resume_reader.snapshot(True).next_sequence == 3
        assert [t.trial.id for t in second.resume_reader.snapshot(True).live] == ["t0", "t2"]


@pytest.mark.parametrize("gone", [["", "-wal", "-shm"], [""], ["-wal"], ["-shm"]], ids=["all", "file", "wal", "shm"])
def test_what_is_written_while_the_files_are_deleted_is_found_at_the_path(store: Store, gone: list[str]) -> None:
    store.write([messages.SaveTrial(trial(0))])
    for suffix in gone:
        store.path.with_name(store.path.name + suffix).unlink()
    store.write([messages.SaveTrial(trial(1))])
    store.write([messages.SaveTrial(trial(2))])
    with contextlib.closing(reopened(store.path)) as again:
        assert again.resume_reader.snapshot(True).next_sequence == 3


def test_what_goes_to_a_file_that_was_replaced_is_not_confirmed_and_written_once(store: Store, tmp_path: Path) -> None:
    metric = [messages.SaveTrial(trial(0)), messages.SaveMetric(Metric("t0", 0, 0, MetricKind.FINAL, 0, 1.0, 1.0))]
    (tmp_path / "other").write_text("an older copy")
    (tmp_path / "other").replace(store.path)
    for _ in range(2):  # as the engine does until it succeeds
        with pytest.raises(StoreError, match="replaced by another file") as caught:
            store.write(metric)
        assert caught.value.busy
    assert store.path.read_text() == "an older copy"
    store.path.unlink()
    store.write(metric)
    with contextlib.closing(reopened(store.path)) as again:
        assert again.resume_reader.attempt("t0", 0) is None
        assert again.resume_reader.snapshot(True).live[0].trial.id == "t0"


async def test_readers_go_on_with_the_file_that_was_written_back(store: Store) -> None:
    store.write([messages.SaveTrial(trial(0))])
    reader = Reader(store.path)
    found = [(await reader.trials(TrialQuery())).total]
    store.path.unlink()
    store.write([messages.SaveTrial(trial(1))])
    found += [(await reader.trials(TrialQuery())).total for _ in range(4)]  # each thread closes the deleted one
    reader.close()
    assert found == [1, 2, 2, 2, 2]
    store.write([messages.SaveTrial(trial(2))])
    with contextlib.closing(reopened(store.path)) as again:
        assert again.resume_reader.snapshot(True).next_sequence == 3, "a closing reader takes no log from its writer"


def test_a_database_without_a_sound_secret_gets_one_that_stays(store: Store) -> None:
    first = store.secret()
    assert store.secret() == first
    store.file.db.execute("UPDATE meta SET value = '' WHERE key = 'secret'")
    assert len(store.secret()) == 64
    assert store.secret() != first


def test_a_full_disk_is_busy_not_broken(store: Store) -> None:
    store.file.db.execute("PRAGMA max_page_count = 12")  # SQLite's own way to run out of space
    many = [messages.SaveTrial(trial(i, reason="x" * 1000)) for i in range(100)]
    with pytest.raises(StoreError, match="free some disk space") as caught:
        store.write(many)
    assert caught.value.busy


@pytest.fixture
def limit_files() -> Iterator[Callable[[int], None]]:
    """Limit the size of the files that this process writes, until the test is over."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_limit_of_the_size_of_files_is_named(store: Store, limit_files: Callable[[int], None]) -> None:
    many = [messages.SaveTrial(trial(i, reason="x" * 1000)) for i in range(500)]
    limit_files(300_000)
    with pytest.raises(StoreError, match=r"no file may exceed 300000 bytes here.*`ulimit -f`") as caught:
        store.write(many)
    assert caught.value.busy


async def test_output_beyond_the_limit_of_the_size_of_files_names_it(
    store: Store, tmp_path: Path, limit_files: Callable[[int], None]
) -> None:
    kept = AsyncStore(store, tmp_path)
    limit_files(1000)
    with pytest.raises(StoreError, match=r"no file may exceed 1000 bytes here.*`ulimit -f`") as caught:
        await kept.append_output(("t", 0), [Output("stdout", 0, b"x" * 1001)], sync=False)
    assert caught.value.busy


def test_a_limit_that_is_far_away_is_not_the_cause(store: Store, limit_files: Callable[[int], None]) -> None:
    limit_files(100_000_000)
    with pytest.raises(StoreError, match=r"retrying$"), translated(store.path, retried=True):
        raise sqlite3.OperationalError("disk I/O error")


def test_a_file_system_that_cannot_share_memory_is_named(store: Store) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_SHMOPEN"
    with pytest.raises(StoreError, match="cannot share memory between programs: keep the experiment on another disk"):
        with translated(store.path):
            raise error


def test_an_io_error_on_a_full_disk_is_a_full_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    room = SimpleNamespace(f_bavail=4, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    with pytest.raises(StoreError, match="free some disk space, then it continues"):
        with translated(store.path, retried=True):
            raise sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ("database or disk is full", r"free some disk space, then try again$"),
        ("unable to open database file", r"\); try again$"),
        ("database is locked", r"another program; try again when it is free$"),
    ],
)
def test_a_start_that_ends_does_not_promise_to_continue(path: Path, monkeypatch: Any, said: str, cure: str) -> None:
    def fail(*_: object, **__: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError(said)

    Store.create(path, "abc", 1.0).close()
    monkeypatch.setattr(sqlite3, "connect", fail)
    for start in (partial(Store.create, path.with_name("new.sqlite"), "abc", 1.0), partial(Store.open, path)):
        with pytest.raises(StoreError, match=cure):
            start()


async def test_only_who_writes_again_promises_to(store: Store, tmp_path: Path) -> None:
    store.file.db.execute("PRAGMA busy_timeout = 0")
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for write in (partial(store.write, [messages.SaveTrial(trial(0))]), store.claim):
            with pytest.raises(StoreError, match=r"; try again when it is free$"):
                write()
        with pytest.raises(StoreError, match=r"; waiting until it is free$"):
            await AsyncStore(store, tmp_path).commit([messages.SaveTrial(trial(0))])


async def test_only_who_reads_again_promises_to(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(
        store, "file", SimpleNamespace(path=store.path, one=fail, meta=fail, db=SimpleNamespace(execute=fail))
    )
    reader = store.resume_reader = ResumeReader(store.file)
    once = (partial(reader.snapshot, True), partial(reader.attempt, "t0", 0))
    for read in (reader.find_revision, reader.find_next_numbers, *once):
        with pytest.raises(StoreError, match=r"; try again$"):
            read()
    kept = AsyncStore(store, tmp_path)
    for wait in (kept.histories(), kept.find_attempt(("t0", 0))):
        with pytest.raises(StoreError, match=r"; retrying$"):
            await wait


def test_an_older_database_is_brought_up_to_date_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.create(path, "abc", 1.0).close()
    monkeypatch.setattr("nnilite._store.database_file.SCHEMA_VERSION", SCHEMA_VERSION + 2)
    first, second = "ALTER TABLE meta ADD COLUMN a TEXT", "ALTER TABLE meta ADD COLUMN b TEXT"
    steps = {SCHEMA_VERSION: first, SCHEMA_VERSION + 1: second}
    monkeypatch.setattr("nnilite._store.database_file.MIGRATIONS", steps)
    for _ in range(2):
        reopened(path).close()
    with sqlite3.connect(path) as db:
        assert [row[1] for row in db.execute("PRAGMA table_info(meta)")] == ["key", "value", "a", "b"]
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 2,)
    db.close()


def test_what_was_spent_at_each_service_is_read_back(path: Path) -> None:
    with contextlib.closing(Store.create(path, "abc", 1.0)) as store:
        attempts = [Attempt("t0", number, name, cost=cost) for number, name, cost in ((0, "a", 1.5), (1, "b", 2.0))]
        store.write([messages.SaveTrial(trial(0)), *map(messages.SaveAttempt, attempts)])
        assert store.resume_reader.snapshot(True).spent == {"a": 1.5, "b": 2.0}


def test_a_database_that_cannot_be_made_as_a_whole_has_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a manager that is killed meanwhile: all is one transaction."""
    monkeypatch.setattr("nnilite._store.database_file.SCHEMA", f"{SCHEMA} CREATE TABLE trials (twice)")
    with pytest.raises(StoreError):
        Store.create(path, "abc", 1.0)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == []
        assert [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")] == [0, 0]


def test_a_reported_end_is_read_back(path: Path) -> None:
    end = Exited(2.5, -15, "canceled by SIGTERM", EndCause.INTERRUPTED)
    with contextlib.closing(Store.create(path, "abc", 1.0)) as store:
        store.write([messages.SaveTrial(trial(0)), messages.SaveAttempt(Attempt("t0", 0, reported_end=end))])
        known = store.resume_reader.attempt("t0", 0)
        assert known is not None
        assert known[1].reported_end == end


def test_a_migration_that_fails_leaves_the_database_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.create(path, "abc", 1.0).close()
    monkeypatch.setattr("nnilite._store.database_file.SCHEMA_VERSION", SCHEMA_VERSION + 1)
    broken = "ALTER TABLE meta ADD COLUMN a TEXT; ALTER TABLE nothing ADD COLUMN b TEXT"
    monkeypatch.setattr("nnilite._store.database_file.MIGRATIONS", {SCHEMA_VERSION: broken})
    with pytest.raises(StoreError):
        reopened(path)
    with sqlite3.connect(path) as db:
        assert [row[1] for row in db.execute("PRAGMA table_info(meta)")] == ["key", "value"]
    db.close()


def put_metrics(store: Store, size: int, *places: tuple[int, int, MetricKind]) -> None:
    """Metrics of `size` bytes, each at (trial, attempt); the trials' present attempts are 1."""
    store.write([messages.SaveTrial(trial(number, attempt=1)) for number in {place[0] for place in places}])
    store.write(
        [
            messages.SaveMetric(Metric(f"t{number}", attempt, index, kind, index, "x" * size, 1.0))
            for index, (number, attempt, kind) in enumerate(places)
        ]
    )


def test_metrics_are_read_for_nni_by_the_bytes_that_they_take(store: Store) -> None:
    """A metric may have a megabyte, so a page of a thousand could have a gigabyte."""
    put_metrics(store, 1_000_000, *[(0, 1, MetricKind.PERIODICAL)] * 30)

    async def count() -> int:
        with contextlib.closing(Reader(store.path)) as reader:
            return sum([1 async for record in records(cast(Results, reader), MetricQuery())])

    tracemalloc.start()
    try:
        assert asyncio.run(count()) == 30
        assert tracemalloc.get_traced_memory()[1] < 15_000_000
    finally:
        tracemalloc.stop()


def test_the_last_intermediate_result_is_that_of_the_present_attempt(store: Store) -> None:
    periodical, final = MetricKind.PERIODICAL, MetricKind.FINAL
    put_metrics(store, 1, (0, 0, periodical), (0, 1, periodical), (1, 1, periodical), (0, 1, periodical), (0, 1, final))

    async def found() -> MetricPage:
        with contextlib.closing(Reader(store.path)) as reader:
            return await reader.metrics(MetricQuery(kind=periodical, current=True, last=True))

    page = asyncio.run(found())
    assert [(metric.trial, metric.index) for metric in page.metrics] == [("t1", 2), ("t0", 3)]
    assert page.parameter_ids == [1, 0]
