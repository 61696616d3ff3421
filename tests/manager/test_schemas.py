"""Databases of earlier versions, which stand in `schemas` as they were made, and a field that a later version adds."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite._answers.queries import TrialRemarks
from nnilite._engine import messages
from nnilite._store.contents import check_rows, check_schema
from nnilite._store.database_schema import SCHEMA, SCHEMA_VERSION
from nnilite._store.trial_remarks import write_remarks
from nnilite._store.writer import Store
from nnilite.records import Attempt, JobState, TrialState

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = Path(__file__).with_name("schemas")
VERSIONS = sorted(int(path.stem) for path in SCHEMAS.glob("*.sql"))


def made(path: Path, version: int) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript((SCHEMAS / f"{version}.sql").read_text())
    return path


@pytest.fixture(params=VERSIONS)
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    """A database of an earlier version, once it is brought up to date."""
    store = Store.open(made(tmp_path / "it's $HOME; a\n.sqlite", request.param))
    with contextlib.closing(store):
        yield store


def test_the_schema_of_each_version_is_kept() -> None:
    assert list(range(1, SCHEMA_VERSION + 1)) == VERSIONS


def test_the_schema_changes_with_its_version_only(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(made(tmp_path / "now.sqlite", SCHEMA_VERSION))) as db:
        check_schema(db, SCHEMA)


def test_an_older_database_becomes_one_of_this_version(store: Store) -> None:
    with contextlib.closing(sqlite3.connect(store.path)) as db:
        check_schema(db, SCHEMA)
        check_rows(db)
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


def test_an_older_database_keeps_its_trials(store: Store) -> None:
    (known,) = store.resume_reader.snapshot(maximize=True).live
    assert (known.trial.id, known.trial.parameters, known.trial.state) == ("t0", {"x": [1, None]}, TrialState.RUNNING)
    assert (known.attempt and known.attempt.handle, known.last_intermediate) == ({"pid": 8}, {"default": 0.5})
    assert (known.lost, [call.trial_job_id for call in store.resume_reader.calls(9)]) == (1, ["t0"])


def test_an_older_database_knows_who_ran_its_trials(store: Store) -> None:
    (known,) = store.resume_reader.snapshot(maximize=True).live
    assert (known.trial.service, known.tried) == ("near", ("near",))


def test_the_trials_of_an_older_database_go_on(store: Store) -> None:
    store.write([messages.SaveAttempt(Attempt("t0", 2, "near", cost=2.5, run="0123456789abcdef"))])
    known = store.resume_reader.attempt("t0", 2)
    assert known is not None
    assert (known[1].cost, known[1].run, known[1].state) == (2.5, "0123456789abcdef", JobState.WAITING)


def test_the_trials_of_an_older_database_take_remarks(store: Store) -> None:
    with contextlib.closing(sqlite3.connect(store.path)) as db:
        (before,) = db.execute("SELECT COALESCE(MAX(revision), 0) FROM remarks").fetchone()
    assert write_remarks(store.path, TrialRemarks("t0", ("better",), "", before)).revision == before + 1


@pytest.mark.parametrize("version", VERSIONS)
def test_two_processes_bring_a_database_up_to_date_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    path = made(tmp_path / "old.sqlite", version)

    def let_another_one_in(*_: object) -> None:
        monkeypatch.undo()
        Store.open(path).close()

    # It stands between reading the version and the first step.
    monkeypatch.setattr("nnilite._store.database_file.check_objects", let_another_one_in)
    with contextlib.closing(Store.open(path)) as store:
        check_schema(store.file.db, SCHEMA)


# ---------------------------------------------------------------- a field that a later version adds

FIELD = '    cost: Annotated[float | None, "of its attempts'
PLACES = {
    "nnilite/records/record_types.py": (
        FIELD,
        f'    mood: Annotated[str, "how its user feels about it"] = "calm"\n{FIELD}',
    ),
    "nnilite/_store/database_schema.py": (
        "\n}\n",
        f"""\n    {SCHEMA_VERSION}: f"ALTER TABLE trials ADD COLUMN {{TRIALS.declaration('mood')}}",\n}}\n""",
    ),
}
PROGRAM = """
import asyncio, json, sys
from dataclasses import replace
from pathlib import Path
from nnilite._answers.bulk_queries import PageCursor, Table
from nnilite._engine import messages
from nnilite.records.shapes import schema_of, to_json
from nnilite._store.contents import check_rows, check_schema
from nnilite._store.database_schema import SCHEMA
from nnilite._store.reader import Reader
from nnilite._store.tables import BulkReader
from nnilite._store.writer import Store
from nnilite.records import Trial

store = Store.open(Path(sys.argv[1]))
(known,) = store.resume_reader.snapshot(maximize=True).live
assert known.trial.mood == "calm", known.trial
store.write([messages.SaveTrial(replace(known.trial, mood="keen"))])
check_schema(store.file.db, SCHEMA)
check_rows(store.file.db)
again = store.resume_reader.attempt("t0", 1)[0]
assert (to_json(again)["mood"], "mood" in schema_of(Trial)["properties"]) == ("keen", True)
reader = Reader(store.path)
page = asyncio.run(BulkReader(reader, {}).rows(Table.TRIALS, PageCursor(), 10))
row = dict(zip(Table.TRIALS.columns, json.loads(page.rows)[0]))
assert (row["mood"], row["cost"], row["latest"]) == ("keen", again.cost, {"default": 0.5}), row
store.file.db.execute("UPDATE trials SET mood = X'00'")
try:
    store.resume_reader.snapshot(maximize=True)
except Exception as error:
    print(type(error).__name__)
reader.close()
store.close()
"""


@pytest.mark.process
def test_a_new_field_of_a_trial_is_kept_and_sent_after_edits_in_two_places(tmp_path: Path) -> None:
    """It is stored, checked, brought to older databases, and sent as JSON and in rows.

    The third place is `wire.d.ts`, the page's word for what is sent: `test_web_sources` compares it.
    """
    skipped = shutil.ignore_patterns("__pycache__", "_web")
    shutil.copytree(ROOT / "nnilite", tmp_path / "nnilite", ignore=skipped)
    for place, (old, new) in PLACES.items():
        text = (tmp_path / place).read_text()
        assert text.count(old) == 1
        (tmp_path / place).write_text(text.replace(old, new))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    program = [sys.executable, "-c", PROGRAM, str(made(tmp_path / "old.sqlite", SCHEMA_VERSION))]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", "StoreError")
