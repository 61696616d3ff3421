"""What people have written about trials: tags and notes, in the table `remarks`.

The engine knows nothing of them. So a manager, a viewer and a command that has opened a stopped experiment write them
in the same way, in a transaction of their own. Each change gets the next `revision` of all remarks: a change names the
revision that it is based on, so that no text is overwritten unseen, and a reader asks for the revisions after its last
one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nnilite._answers.queries import RemarksQuery, TrialRemarks
from nnilite._store.database_file import transaction
from nnilite._store.rows import REMARK_COLUMNS, make_remarks
from nnilite._store.store_errors import translated
from nnilite.errors import Conflict, NotFound, StoreError
from nnilite.records import storable

_PATIENCE_S = 5.0  # for what other programs write meanwhile

WITH_TAG = (
    "sequence IN (SELECT r.trial FROM remarks r, json_each(CASE WHEN json_valid(r.tags) THEN r.tags ELSE '[]' END) j "
    "WHERE j.value = ?)"
)
"""A condition on rows of the table `trials`."""


def find_remarks(rows: Callable[..., list[Any]], query: RemarksQuery) -> list[TrialRemarks]:
    """Return the remarks that are asked for, by revision; `rows(query, *values)` reads from the database."""
    condition, values = "", []
    if query.trials is not None:
        condition, values = "AND t.id IN (SELECT value FROM json_each(?)) ", [json.dumps(list(query.trials))]
    found = rows(
        f"SELECT {REMARK_COLUMNS} FROM remarks r JOIN trials t ON t.sequence = r.trial "
        f"WHERE r.revision > ? {condition}ORDER BY r.revision LIMIT ?",
        *(query.after, *values, -1 if query.limit is None else query.limit),
    )
    return [make_remarks(row) for row in found]


def write_remarks(path: Path, remarks: TrialRemarks) -> TrialRemarks:
    """Replace the remarks of this trial and revision in the database. Return them with their new revision.

    Raises: NotFound, Conflict if they have been changed meanwhile, StoreError.
    """
    with translated(path), _begin_transaction(path) as db:
        place = db.execute("SELECT sequence FROM trials WHERE id = ?", (remarks.trial,)).fetchone()
        if place is None:
            raise NotFound(f"There is no trial {remarks.trial!r} in this experiment.")
        now = db.execute("SELECT revision FROM remarks WHERE trial = ?", place).fetchone()
        if remarks.revision != (0 if now is None else now[0]):
            raise Conflict("these remarks have changed in the meantime; load them again before you change them")
        revision = db.execute("SELECT COALESCE(MAX(revision), 0) + 1 FROM remarks").fetchone()[0]
        tags, note = tuple(map(storable, remarks.tags)), storable(remarks.note)
        row = (*place, json.dumps(tags), note, revision)
        db.execute("INSERT OR REPLACE INTO remarks (trial, tags, note, revision) VALUES (?, ?, ?, ?)", row)
    return TrialRemarks(remarks.trial, tags, note, revision)


@contextlib.contextmanager
def _begin_transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection in a transaction.

    It is on the disk after the end of the block, or undone after an error.
    """
    if not path.is_file():
        raise StoreError(f"{path} is missing; try again in a moment", busy=True)
    uri = f"file:{quote(os.fsencode(path))}?mode=rw"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_PATIENCE_S)
    with contextlib.closing(db):
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA synchronous = FULL")
        with transaction(db):
            yield db
