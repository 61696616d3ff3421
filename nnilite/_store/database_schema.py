"""The tables of the database, and the steps that bring an older one up to date.

A database that was brought up to date has the same tables as a new one, to the letter (see `check_schema`).
"""

from __future__ import annotations

from nnilite._store.columns import ATTEMPTS, TRIALS

_REMOVALS = """
CREATE TABLE removals (
  trial INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (trial, number)) WITHOUT ROWID"""
_REMARKS = """
CREATE TABLE remarks (
  trial INTEGER PRIMARY KEY, tags TEXT NOT NULL, note TEXT NOT NULL, revision INTEGER NOT NULL UNIQUE)"""
_ATTRIBUTES = """
CREATE TABLE attributes (
  trial INTEGER NOT NULL, attempt INTEGER NOT NULL, idx INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
  time REAL NOT NULL, PRIMARY KEY (trial, attempt, idx)) WITHOUT ROWID"""
_COSTS = """
ALTER TABLE trials ADD COLUMN service TEXT NOT NULL DEFAULT '';
ALTER TABLE trials ADD COLUMN cost REAL;
ALTER TABLE attempts ADD COLUMN cost REAL;
UPDATE trials SET service = COALESCE(
  (SELECT a.service FROM attempts a WHERE a.trial = trials.sequence AND a.number = trials.attempt), '')"""
# Results that break constraints are counted with each profile, which is asked for all the time.
_VIOLATIONS = "CREATE INDEX trials_violates ON trials (state, violates) WHERE violates != ''"
MIGRATIONS: dict[int, str] = {
    1: _REMOVALS,
    2: "ALTER TABLE attempts ADD COLUMN reported_end TEXT",
    3: _COSTS,
    4: _REMARKS,
    5: "ALTER TABLE attempts ADD COLUMN run TEXT NOT NULL DEFAULT ''",
    6: f"ALTER TABLE trials ADD COLUMN {TRIALS.declaration('attributes')}; {_ATTRIBUTES}",
    7: f"ALTER TABLE trials ADD COLUMN {TRIALS.declaration('violates')}",
    8: f"ALTER TABLE attempts ADD COLUMN {ATTEMPTS.declaration('image')}",
    9: _VIOLATIONS,
}
"""By schema version, the statements that lead to the next.

A new field of a record needs one more: `f"ALTER TABLE trials ADD COLUMN {TRIALS.declaration('name')}"`.
"""
SCHEMA_VERSION = max(MIGRATIONS) + 1
_IN_TRIALS = {"sequence": "sequence INTEGER PRIMARY KEY", "id": "id TEXT NOT NULL UNIQUE"}
SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trials (
  {", ".join(_IN_TRIALS.get(name) or TRIALS.declaration(name) for name in TRIALS.columns)});
CREATE INDEX trials_state ON trials (state, score);
CREATE INDEX trials_score ON trials (score);
CREATE INDEX trials_revision ON trials (revision);
{_VIOLATIONS};
CREATE TABLE attempts (
  {", ".join(map(ATTEMPTS.declaration, ATTEMPTS.columns))},
  PRIMARY KEY (trial, number)) WITHOUT ROWID;
CREATE TABLE metrics (
  trial INTEGER NOT NULL, attempt INTEGER NOT NULL, idx INTEGER NOT NULL, final INTEGER NOT NULL,
  sequence INTEGER NOT NULL, value TEXT NOT NULL, time REAL NOT NULL);
CREATE UNIQUE INDEX metrics_place ON metrics (trial, attempt, idx);
CREATE TABLE calls (
  number INTEGER PRIMARY KEY, kind TEXT NOT NULL, trial TEXT, parameter_id INTEGER, value TEXT, success INTEGER,
  customized INTEGER NOT NULL);
{_REMOVALS};
{_REMARKS};
{_ATTRIBUTES};
"""
