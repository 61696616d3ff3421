"""Databases that a disk, a program or a person has damaged: whatever reads them says so in a sentence."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnilite._answers.backend import MetricQuery, TrialQuery
from nnilite._answers.bulk_queries import PageCursor, Table
from nnilite._cli.nnictl import run
from nnilite._engine import messages
from nnilite._experiments import registry
from nnilite._store.database_file import FILE_NAME
from nnilite._store.integrity import IntegrityCheck
from nnilite._store.results import read_calls, read_succeeded
from nnilite._store.writer import Store, open_store
from nnilite._views.experiment_view import assemble_view
from nnilite.config import from_dict
from nnilite.errors import NniliteError, StoreError
from nnilite.records import Attempt, CallKind, ExperimentState, JobState, Metric, MetricKind, Trial, TrialState
from nnilite.records.shapes import to_json
from nnilite.records.strict_json import spell_json
from nnilite.tuner import Call

CONFIG = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": "true",
    "trialConcurrency": 1,
    "tuner": {"name": "Random"},
    "trainingService": {"platform": "local"},
}


def fill(store: Store) -> None:
    states = [TrialState.SUCCEEDED, TrialState.FAILED, TrialState.RUNNING]
    records: list[Any] = [messages.SaveExperiment(ExperimentState.RUNNING, "", 1.5, None, messages.Settings(2))]
    for n in range(30):
        state = states[n % 3]
        ended = 3.0 if state.ended else None
        value = {"default": n, "loss": [0.5]} if state is TrialState.SUCCEEDED else None
        trial = Trial(f"t{n}", n, {"x": n}, n, "algorithm", state, "", 0, 1.0, 2.0, ended, value)
        job = JobState.SUCCEEDED if state.ended else JobState.RUNNING
        records += [
            messages.SaveTrial(trial),
            messages.SaveAttempt(Attempt(f"t{n}", 0, "local", {"pid": 1}, job, 2.0, ended)),
        ]
        records += [messages.SaveMetric(Metric(f"t{n}", 0, k, MetricKind.PERIODICAL, k, k / 2, 2.5)) for k in range(5)]
        records.append(messages.SaveCall(2 * n + 1, Call(CallKind.GENERATE, n, f"t{n}", {"x": n})))
        records.append(messages.SaveCall(2 * n + 2, Call(CallKind.IMPORT, value=[{"parameter": 1, "value": 2}])))
    store.write(records)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / FILE_NAME
    with contextlib.closing(Store.create(path, "abc", 1.0)) as store:
        fill(store)
    return path.read_bytes()


async def all_of(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


async def look_at(reading: Any) -> None:
    """All that a view can be asked, as it is sent. Raises: NniliteError."""
    answers: list[Any] = [await reading.profile(), *await all_of(reading.results.read_ended())]
    answers += (await reading.results.trials(TrialQuery())).trials
    answers += (await reading.results.metrics(MetricQuery())).metrics
    answers += (await reading.results.trial("t2"))[1]
    spell_json([to_json(answer) for answer in answers])
    await reading.results.imported()
    await reading.bulk.rows(Table.TRIALS, PageCursor(-1, -1), 1000)
    await reading.bulk.rows(Table.ATTEMPTS, PageCursor(-1, -1), 1000)
    await reading.bulk.curves(["t1", "t2"], 10, "default")


def problem(folder: Path, data: bytes, change: str = "") -> str:
    """What a view of this database says, "" if it can read it all."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob(FILE_NAME + "*"):
        old.unlink()
    (folder / FILE_NAME).write_bytes(data)
    if change:
        with contextlib.closing(sqlite3.connect(folder / FILE_NAME, isolation_level=None)) as db:
            db.execute(change)
    config = from_dict(CONFIG).checked()
    with contextlib.ExitStack() as stack:
        try:
            store = stack.enter_context(contextlib.closing(open_store(folder, False, 1.0)))
            reading = assemble_view(folder, config, store, None)
            stack.callback(reading.results.close)
            asyncio.run(look_at(reading))
            store.resume_reader.calls(100), store.resume_reader.histories(), store.resume_reader.attempt("t1", 0)
        except NniliteError as error:
            return str(error)
    return ""


def test_a_whole_one_is_no_problem(whole: bytes, tmp_path: Path) -> None:
    assert problem(tmp_path / "it's $HOME", whole) == ""


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE trials SET state = 'NEVER' WHERE sequence = 3",
        "UPDATE trials SET created = 'yesterday'",
        "UPDATE trials SET value = x'ff00' WHERE sequence = 0",
        "UPDATE trials SET id = CAST(x'ff' AS TEXT) WHERE sequence = 3",
        "UPDATE trials SET attempt = 'a'",
        "UPDATE trials SET parameters = x'7b'",
        "UPDATE trials SET revision = 'new'",
        "UPDATE attempts SET handle = '{'",
        "UPDATE attempts SET state = 'NEVER'",
        "UPDATE attempts SET exit_code = 'none'",
        "UPDATE metrics SET time = 'now'",
        "UPDATE metrics SET value = x'00'",
        "UPDATE calls SET value = '[1]' WHERE kind = 'import'",
        "UPDATE calls SET kind = 'call'",
        "UPDATE meta SET value = 'x' WHERE key = 'created'",
        "UPDATE meta SET value = 'x' WHERE key = 'ended'",
        "UPDATE meta SET value = '[]' WHERE key = 'duration_s'",
        "UPDATE meta SET value = '{\"concurrency\": \"many\"}' WHERE key = 'limits'",
        "UPDATE meta SET value = '{\"color\": 1}' WHERE key = 'limits'",
        "UPDATE meta SET value = '{\"concurrency\": 1, \"max_slots\": 0}' WHERE key = 'limits'",
        "UPDATE meta SET value = '{\"concurrency\": 1, \"priority\": 0.5}' WHERE key = 'limits'",
        "UPDATE meta SET value = '{\"concurrency\": 1, \"stop_at_value\": NaN}' WHERE key = 'limits'",
        "UPDATE meta SET value = 'NEVER' WHERE key = 'state'",
        "DROP TABLE trials",
        "DROP TABLE meta",
        "DROP TABLE metrics",
        "ALTER TABLE attempts DROP COLUMN url",
    ],
)
def test_what_nnilite_never_wrote_is_called_damaged(whole: bytes, tmp_path: Path, change: str) -> None:
    assert "restore it from a copy" in problem(tmp_path / "it's $HOME", whole, change)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=40)), min_size=1, max_size=5)
)
@example([(0.0, b"SQLite format 3\0")])
def test_flipped_bytes_are_told_or_do_no_harm(whole: bytes, tmp_path: Path, flips: list[tuple[float, bytes]]) -> None:
    data = bytearray(whole)
    for place, wrong in flips:
        start = int(place * len(data))
        data[start : start + len(wrong)] = wrong[: len(data) - start]
    said = problem(tmp_path / "it's $HOME", bytes(data))
    assert said == "" or FILE_NAME in said


@settings(max_examples=40)
@given(st.integers(0, 100), st.integers(0, 100), st.booleans())
def test_missing_pages_are_told_or_do_no_harm(whole: bytes, tmp_path: Path, first: int, count: int, cut: bool) -> None:
    page = 4096
    start, end = first * page % len(whole), (first + count) * page % len(whole)
    data = whole[: start + count] if cut else whole[:start] + bytes(max(end - start, 0)) + whole[max(start, end) :]
    said = problem(tmp_path / "it's $HOME", data)
    assert said == "" or FILE_NAME in said


ENDLESS = """
ALTER TABLE trials RENAME TO hidden;
CREATE VIEW trials AS
WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT hidden.* FROM n, hidden WHERE n.n < 0
"""
LONG = "length(replace(hex(zeroblob(49000)), '00', hex(zeroblob(4500))))"  # a second, and one gigabyte
COSTLY = " || ".join([LONG] * 200)
FOREIGN = {
    "the view 'trials'": ENDLESS,
    "the table with an expression 'calls'": f"ALTER TABLE calls ADD COLUMN more TEXT AS ({COSTLY}) VIRTUAL",
    "the table with an expression 'remarks'": f"""
DROP TABLE remarks; CREATE TABLE remarks (trial INTEGER PRIMARY KEY, tags TEXT NOT NULL, note TEXT NOT NULL,
revision INTEGER NOT NULL UNIQUE, CHECK ({COSTLY}))""",
    "the table with an expression 'removals'": f"""
DROP TABLE removals; CREATE TABLE removals (trial INTEGER, number INTEGER, more TEXT DEFAULT/**/({COSTLY}))""",
    "the index with an expression 'more'": "CREATE INDEX more ON trials (hex(reason))",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("foreign", FOREIGN)
def test_no_reader_of_a_database_from_elsewhere_waits_for_what_computes_for_ever(
    whole: bytes, tmp_path: Path, foreign: str
) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(whole)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(FOREIGN[foreign])
    for read in (lambda: open_store(tmp_path, False, 1.0), lambda: read_succeeded(path), lambda: read_calls(path)):
        with pytest.raises(StoreError, match=f"contains {foreign}, which nnilite did not create"):
            read()
    with IntegrityCheck(path) as check:
        assert [defect.what for defect in check.findings("abc")] == [
            f"it contains {foreign}, which nnilite did not create"
        ]


def test_a_price_below_zero_is_a_defect(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(whole)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE trials SET cost = -1 WHERE sequence = 3")
    with IntegrityCheck(path) as check:
        assert [defect.what for defect in check.findings("abc")] == ["in its table trials, cost cannot be -1.0"]


@pytest.mark.process
@pytest.mark.parametrize("damage", ["UPDATE trials SET created = 'yesterday'", "DROP TABLE metrics", "cut", "config"])
def test_every_command_that_opens_it_says_a_sentence(
    whole: bytes, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "abcd"
    (folder / "log").mkdir(parents=True)
    registry.add("abcd", "digits", folder, "local", 1.0)
    registry.write_json(folder / "config.json", "no config" if damage == "config" else CONFIG)
    (folder / FILE_NAME).write_bytes(whole[: len(whole) // 2] if damage == "cut" else whole)
    if " " in damage:
        problem(folder, whole, damage)
    metrics = ["trial", "show", "abcd", "--trial-id", "t2"]
    for words in (["view", "abcd", "--port", "0"], ["trial", "ls", "abcd"], ["experiment", "show", "abcd"], metrics):
        if damage.startswith("DROP") and words[0] == "experiment":
            continue  # which asks for no metrics
        run(words)
        err = capfd.readouterr().err
        assert "Traceback" not in err
        assert "ERROR" not in err or len(err.strip().splitlines()) <= 2, err
    run(["stop", "--all"])
