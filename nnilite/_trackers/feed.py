"""Reads what is new in an experiment's database and hands it to a tracker.

The position that was reached is kept in a file: the last revision of trials, and the row of the last metric. It is
written after the tracker has taken everything up to it. What a process that was killed has sent beyond it belongs to
trials that count as changed for the next process, which begins their runs again. No read transaction is open while a
tracker is waited for, since the database's log would grow meanwhile.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnilite._experiments.documents import read_document, write_json
from nnilite._store.database_file import open_read_only
from nnilite._store.stored_values import read_stored_value
from nnilite._trackers.runs import CurvePoint, Run, Runs, flat, list_points
from nnilite.errors import DamagedFile

FOLDER = "trackers"
"""The folder of an experiment in which the positions of its trackers are kept."""

_BATCH = 5000
_NOTED_EVERY_S = 1.0
_CURE = "remove it, and everything is sent again"
_TRIALS = "SELECT sequence, id, parameters, state, attempt, created FROM trials"
_OPEN_STATES = ("WAITING", "RUNNING", "UNKNOWN")
_EARLIER = {"SUCCEEDED": "SUCCEEDED", "FAILED": "FAILED", "CANCELED": "USER_CANCELED"}
"""The state of a trial that was run again, by that of the attempt before."""


class Feed:
    """Feeds one tracker. `position` is the file in which the reached position is kept."""

    def __init__(self, database: Path, position: Path, experiment: str, runs: Runs) -> None:
        self._path, self._position, self._experiment, self._runs = database, position, experiment, runs
        self._revision, self._row = read_position(position)
        self._begun: dict[int, tuple[Run, int]] = {}  # by trial: its open run, and the next index that it gets
        self._db: sqlite3.Connection | None = None

    def open(self) -> None:
        """Connect to the database, to read only."""
        self._db = open_read_only(self._path)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._runs.close()

    def step(self) -> bool:
        """Hand over what is new. Return whether there was anything."""
        row = self._rows("SELECT COALESCE(MAX(rowid), 0) FROM metrics")[0][0]
        revision = self._rows("SELECT COALESCE(MAX(revision), 0) FROM trials")[0][0]
        if (revision, row) == (self._revision, self._row):
            return False
        noted_s = time.monotonic()
        for count, trial in enumerate(self._find_touched(revision, row), 1):
            self._hand_over(*trial)
            if time.monotonic() > noted_s + _NOTED_EVERY_S:
                # The position stays where everything before it has been taken; this is for people who wait.
                write_json(self._position, {"revision": self._revision, "row": self._row, "handed": count})
                noted_s = time.monotonic()
        self._revision, self._row = revision, row
        write_json(self._position, {"revision": revision, "row": row})
        return True

    def _find_touched(self, revision: int, row: int) -> list[tuple[Any, ...]]:
        """Return all trials that have changed, or have reported, since the position."""
        return self._rows(
            f"{_TRIALS} WHERE revision > ? AND revision <= ? OR sequence IN "
            "(SELECT DISTINCT trial FROM metrics WHERE rowid > ? AND rowid <= ?) ORDER BY sequence",
            *(self._revision, revision, self._row, row),
        )

    def _hand_over(self, sequence: int, trial: str, parameters: str, state: str, attempt: int, created: float) -> None:
        if state == "WAITING" and attempt == 0:
            return
        if sequence in self._begun and self._begun[sequence][0].attempt != attempt:
            self._finish_earlier(sequence)
        if sequence not in self._begun:
            run = Run(self._experiment, trial, sequence, attempt, flat(read_stored_value(parameters)), created)
            # Another process may have left the run of an earlier attempt open.
            for earlier in range(attempt):
                self._begin(replace(run, attempt=earlier))
                self._finish_earlier(sequence)
            self._begin(run)
        self._send(sequence)
        if state not in _OPEN_STATES:
            self._finish(sequence, state)

    def _begin(self, run: Run) -> None:
        self._runs.begin(run)
        self._begun[run.sequence] = (run, 0)

    def _send(self, sequence: int) -> None:
        run, index = self._begun[sequence]
        for last, points in self._points(run, index):
            self._runs.send(run, points)
            self._begun[sequence] = (run, last + 1)

    def _finish_earlier(self, sequence: int) -> None:
        """End the run of an attempt that was followed by another: a lost one, or of a trial that is run again."""
        attempt = self._begun[sequence][0].attempt
        found = self._rows("SELECT state, cancel FROM attempts WHERE trial = ? AND number = ?", sequence, attempt)
        state, canceled = found[0] if found else ("LOST", "")
        self._finish(sequence, canceled if state == "CANCELED" and canceled else _EARLIER.get(state, "LOST"))

    def _finish(self, sequence: int, state: str) -> None:
        self._send(sequence)
        run, _ = self._begun.pop(sequence)
        self._runs.end(run, state)

    def _points(self, run: Run, index: int) -> Iterator[tuple[int, list[CurvePoint]]]:
        """Yield the points of a run from a report on, in batches, each with the number of its last report."""
        while rows := self._rows(
            "SELECT idx, final, value, time FROM metrics WHERE trial = ? AND attempt = ? AND idx >= ? "
            "ORDER BY idx LIMIT ?",
            *(run.sequence, run.attempt, index, _BATCH),
        ):
            points = [
                point
                for step, final, value, time in rows
                for point in list_points(read_stored_value(value), step, time, final=bool(final))
            ]
            yield rows[-1][0], points
            index = rows[-1][0] + 1

    def _rows(self, query: str, *values: Any) -> list[Any]:
        if self._db is None:
            raise sqlite3.ProgrammingError("the feed is not open")
        return self._db.execute(query, values).fetchall()


def find_position_file(directory: Path, number: int, name: str) -> Path:
    """Return the file that keeps the position of a tracker of an experiment; `number` is its place in the config."""
    return directory / FOLDER / f"{number}-{name}.json"


def unsent(database: Path, position: Path) -> tuple[int, int]:
    """Return how many trials and how many results a tracker has not got. Raises: sqlite3.Error, UnreadableFile."""
    revision, row = read_position(position)
    with contextlib.closing(open_read_only(database)) as db:
        changed = "SELECT COUNT(*) FROM trials WHERE revision > ? AND NOT (state = 'WAITING' AND attempt = 0)"
        (trials,) = db.execute(changed, (revision,)).fetchone()
        (last,) = db.execute("SELECT COALESCE(MAX(rowid), 0) FROM metrics").fetchone()
    return max(trials - _read_handed(position), 0), max(last - row, 0)


def _read_handed(position: Path) -> int:
    """Return how many of the trials after the position have been handed over already."""
    with contextlib.suppress(FileNotFoundError, DamagedFile):
        return read_document(position, _CURE).whole("handed", 0, 2**53) or 0
    return 0


def read_position(path: Path) -> tuple[int, int]:
    """Return the position that was reached; the beginning if there is none that can be read."""
    with contextlib.suppress(FileNotFoundError, DamagedFile):
        found = read_document(path, _CURE)
        return found.whole("revision", 0, 2**53) or 0, found.whole("row", 0, 2**53) or 0
    return 0, 0
