"""Makes a database of nnilite from one of Microsoft NNI, so that all that reads experiments reads those, too.

Only a copy is ever opened: SQLite may have to complete a transaction that NNI's end cut off, which it does in the file.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

from nnilite._engine import messages
from nnilite._experiments.nni_folders import DATABASE
from nnilite._nni.nni_rows import NniProfile, NniRows
from nnilite._store.contents import list_foreign_objects
from nnilite._store.database_file import refuse_foreign_journal
from nnilite._store.store_errors import translated
from nnilite._store.writer import Store
from nnilite.errors import NotFound, ServiceError, StoreError
from nnilite.foreign_files import open_below, save_stream
from nnilite.records import ExperimentState

Stamp = list[int]
"""Size and time of a database: if they are the same, it has not changed."""


def stamp(directory: Path) -> Stamp:
    """Return the stamp of NNI's database in an experiment's folder. Raises: OSError."""
    found = (directory / DATABASE).stat()
    return [found.st_size, found.st_mtime_ns]


def make(directory: Path, target: Path, experiment: str, state: ExperimentState) -> NniProfile:
    """Write the database `target` from the folder of an experiment of NNI; returns the experiment's profile.

    Raises: StoreError with the path if the database cannot be read.
    """
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix=".nni-", dir=target.parent) as folder:
        copy = Path(folder, DATABASE.name)
        try:
            _copy(directory / DATABASE, copy)
            with translated(directory / DATABASE), contextlib.closing(sqlite3.connect(copy)) as db:
                db.execute("PRAGMA trusted_schema = OFF")
                db.execute("PRAGMA cell_size_check = ON")
                profile, records = _read(db)
        except (StoreError, NotFound, ServiceError, OSError) as error:
            raise StoreError(f"{directory / DATABASE} cannot be read as a database of NNI: {error}.") from error
        draft = Path(folder, target.name)
        with contextlib.closing(Store.create(draft, experiment, profile.started or 0.0)) as store:
            store.write(
                [*records, messages.SaveExperiment(state, "", profile.duration_s, profile.ended, messages.Settings(1))]
            )
            store.file.fold_log()
        draft.replace(target)
    return profile


def _copy(source: Path, target: Path) -> None:
    with open_below(source.parent, source.name) as file:
        save_stream(file.read, target)
    with contextlib.suppress(NotFound), open_below(source.parent, f"{source.name}-journal") as journal:
        save_stream(journal.read, target.with_name(f"{target.name}-journal"))
    refuse_foreign_journal(target)


def _read(db: sqlite3.Connection) -> tuple[NniProfile, list[messages.Record]]:
    foreign = list_foreign_objects(db)
    if foreign:
        raise StoreError(f"it contains what NNI did not make: {foreign[0]}")
    damage = [str(row[0]) for row in db.execute("PRAGMA quick_check(1)")]
    if damage != ["ok"]:
        raise StoreError(f"it is damaged ({damage[0]:.100}), or NNI was writing to it; try again")
    rows = NniRows(db)
    return rows.profile(), rows.records()
