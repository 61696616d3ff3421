"""Reads results, and calls of the tuner, of an experiment that need not be this one, from its database."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from nnilite._experiments.nni_folders import is_uncertain
from nnilite._store.contents import check_objects
from nnilite._store.database_file import open_read_only
from nnilite._store.resume_reader import list_calls
from nnilite._store.store_errors import translated_on_read
from nnilite._store.stored_values import read_stored_value
from nnilite.errors import NotFound
from nnilite.records import Json
from nnilite.tuner import Call


def read_succeeded(path: Path) -> list[Json]:
    """Return the results of the trials that succeeded, as `{"parameter": ..., "value": ...}`, in order.

    Trials of Microsoft NNI whose parameters are not known are left out. Raises: NotFound, StoreError.
    """
    with _reading(path) as db:
        rows = db.execute(
            "SELECT parameters, value, reason FROM trials WHERE state = 'SUCCEEDED' AND value IS NOT NULL "
            "ORDER BY sequence"
        )
        known = [(parameters, value) for parameters, value, reason in rows if not is_uncertain(reason)]
        return [{"parameter": read_stored_value(given), "value": read_stored_value(value)} for given, value in known]


def read_calls(path: Path) -> list[Call]:
    """Return all calls of the tuner, in the order in which it got them. Raises: NotFound, StoreError."""
    with _reading(path) as db:
        return list_calls(db)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise NotFound(f"There is no database {path}.")
    with translated_on_read(path), contextlib.closing(open_read_only(path)) as db:
        check_objects(db, path)
        yield db
