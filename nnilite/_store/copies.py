"""Puts an experiment's database into an archive, and takes one out of an archive.

The copy is another experiment. It has no secret, so no token of the first one gives access to it, and it cannot reach
the jobs of attempts that still ran: these belong to the experiment that started them.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from nnilite._store.contents import check_rows, check_schema
from nnilite._store.database_file import DatabaseFile, open_read_only
from nnilite._store.database_schema import SCHEMA
from nnilite._store.store_errors import translated
from nnilite.errors import StoreError

_LIVE = "('WAITING', 'RUNNING', 'UNKNOWN')"
_REASON = "it ran when the experiment was copied, and belongs to that one; trying again"
_SEPARATE = (
    f"""
UPDATE attempts SET state = 'LOST', ended = COALESCE(ended, :now), message = '{_REASON}', handle = NULL, cancel = '',
reported_end = NULL
WHERE EXISTS (SELECT 1 FROM trials t WHERE t.sequence = trial AND t.attempt = number AND t.state IN {_LIVE})""",
    f"""
UPDATE trials SET state = 'WAITING', reason = '{_REASON}', attempt = attempt + 1, started = NULL, ended = NULL,
value = NULL, score = NULL, service = '', attributes = '{{}}', violates = ''
WHERE state IN {_LIVE} AND EXISTS (SELECT 1 FROM attempts a WHERE a.trial = sequence AND a.number = attempt)""",
    "DELETE FROM removals",
    "DELETE FROM meta WHERE key IN ('secret', 'manager')",
)
"""The statements that make a copy an experiment of its own."""


@dataclass(frozen=True)
class Unfinished:
    """The unfinished work that stays with the original experiment."""

    trials: int  # that were on a platform
    removals: int  # jobs for which a platform still holds something


def copy_out(source: Path, target: Path) -> Unfinished:
    """Write a whole copy without secrets, as one file, of a database that no manager has open. Raises: StoreError."""
    with translated(source), contextlib.ExitStack() as opened:
        db = opened.enter_context(contextlib.closing(open_read_only(source)))
        copy = opened.enter_context(contextlib.closing(sqlite3.connect(target, isolation_level=None)))
        db.backup(copy)
        unfinished = Unfinished(
            copy.execute(
                f"SELECT COUNT(*) FROM trials t JOIN attempts a ON a.trial = t.sequence AND a.number = t.attempt "
                f"WHERE t.state IN {_LIVE}"
            ).fetchone()[0],
            copy.execute("SELECT COUNT(*) FROM removals").fetchone()[0],
        )
        # In WAL mode, part of the copy could stay in a second file.
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.execute("DELETE FROM meta WHERE key IN ('secret', 'manager')")
        # Deleted rows stay in the file until this.
        copy.execute("VACUUM")
    return unfinished


def import_database(path: Path, experiment: str, now: float) -> None:
    """Check a database from elsewhere, and make it the database of a copy. Raises: StoreError."""
    with translated(path):
        # This refuses files of other programs and newer versions, and migrates older ones.
        DatabaseFile.open(path).close()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA trusted_schema = OFF")
            # A file from elsewhere may be damaged on purpose; SQLite then checks each page that it reads.
            db.execute("PRAGMA cell_size_check = ON")
            try:
                _check(db, experiment)
            except StoreError as error:
                raise StoreError(f"{path.name} in it is not an experiment's: {error}.") from error
            # Deleted handles and secrets are overwritten, since other experiments must not find them in the file.
            db.execute("PRAGMA secure_delete = ON")
            for statement in _SEPARATE:
                db.execute(statement, {"now": now} if ":now" in statement else {})


def _check(db: sqlite3.Connection, experiment: str) -> None:
    found = [str(row[0]) for row in db.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        raise StoreError(f"it is damaged ({found[0]:.100})")
    check_schema(db, SCHEMA)
    check_rows(db)
    row = db.execute("SELECT value FROM meta WHERE key = 'id'").fetchone()
    if row is None or row[0] != experiment:
        raise StoreError(f"it belongs to another one, not to {experiment}")
