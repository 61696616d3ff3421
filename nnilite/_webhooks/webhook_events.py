"""What has happened in an experiment since a position, read from its database.

A position moves when a message has been delivered, or is not wanted. So a message may come twice, after a crash
between its delivery and the write of the position, but none is left out; its id is the same then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from nnilite._experiments.documents import read_document, write_json
from nnilite._store.database_file import open_read_only
from nnilite._store.stored_values import read_stored_value
from nnilite.errors import DamagedFile
from nnilite.records import Json

_ENDED = ("DONE", "STOPPED", "ERROR")
_BATCH = 1000
_COLUMNS = "revision, sequence, id, state, reason, parameters, value, service, started, ended, attempt, score, violates"


@dataclass(frozen=True)
class Position:
    """How much the address has received: trials by the order of their changes, the best score, and ends."""

    revision: int = 0
    sequence: int = -1
    best: float | None = None
    ends: int = 0
    over: bool = False  # whether the present end has been sent


@dataclass(frozen=True)
class Message:
    """What is sent. `kind` is best, failure or end; the id is the same however often it is sent."""

    id: str
    kind: str
    text: str
    data: dict[str, Json]


class WebhookEventReader:
    """Reads one experiment's database. No transaction is open while a message is sent."""

    def __init__(self, database: Path, experiment: str, name: str, maximize: bool) -> None:
        self._experiment, self._name, self._maximize = experiment, name, maximize
        self._db = open_read_only(database)
        self._failures: set[str] = set()  # that were sent; a trial may change after its end

    def read_since(self, position: Position) -> Iterator[tuple[Message | None, Position]]:
        """Yield what has happened after the position, in order, each with the position once it is sent."""
        while found := self._trials(position):
            for row in found:
                message, position = self._find_news_of_trial(row, position)
                yield message, position
        # The state is read last: no trial ends after the experiment, so the end is the last message.
        state = self._read_meta("state")
        if state in _ENDED and not position.over:
            if self._trials(position):
                return
            position = replace(position, over=True, ends=position.ends + 1)
            yield self._end(state, position.ends), position
        elif state not in _ENDED and position.over:
            yield None, replace(position, over=False)

    def mark_sent(self, message: Message) -> None:
        """Note that the message must not come again from this process."""
        if message.kind == "failure":
            self._failures.add(message.id)

    def close(self) -> None:
        self._db.close()

    def _trials(self, position: Position) -> list[Any]:
        query = f"SELECT {_COLUMNS} FROM trials WHERE (revision, sequence) > (?, ?) ORDER BY revision, sequence LIMIT ?"
        return self._db.execute(query, (position.revision, position.sequence, _BATCH)).fetchall()

    def _find_news_of_trial(self, row: tuple[Any, ...], position: Position) -> tuple[Message | None, Position]:
        revision, sequence, trial, state, reason, *_, attempt, score, violates = row
        reached = replace(position, revision=revision, sequence=sequence)
        # A trial that is run again may fail, or be the best, a second time.
        about = f"{trial}-{attempt}" if attempt else trial
        failure = f"{self._experiment}-failure-{about}"
        if state == "FAILED" and failure not in self._failures:
            text = f"{self._title()}: trial {sequence} ({trial}) has failed: {_plain(reason) or 'no reason is known'}"
            return Message(failure, "failure", text, self._data(row)), reached
        # As everywhere, a result that breaks a constraint is never the best.
        may_be_best = state == "SUCCEEDED" and score is not None and not violates
        if may_be_best and self._is_better(score, position.best):
            text = f"{self._title()}: trial {sequence} ({trial}) has the best result so far, {score:g}"
            data = {**self._data(row), "previous": position.best}
            return Message(f"{self._experiment}-best-{about}", "best", text, data), replace(reached, best=score)
        return None, reached

    def _is_better(self, score: float, best: float | None) -> bool:
        return best is None or (score > best if self._maximize else score < best)

    def _end(self, state: str, number: int) -> Message:
        order = "DESC" if self._maximize else "ASC"
        counts = dict(self._db.execute("SELECT state, COUNT(*) FROM trials GROUP BY state").fetchall())
        best = self._db.execute(
            f"SELECT {_COLUMNS} FROM trials WHERE state = 'SUCCEEDED' AND score IS NOT NULL AND violates = '' "
            f"ORDER BY score {order}, sequence LIMIT 1"
        ).fetchone()
        reason = self._read_meta("reason")
        counted = ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "no trials"
        text = f"{self._title()} is {state}{f' ({_plain(reason)})' if reason else ''}: {counted}"
        data: dict[str, Json] = {"experiment": self._about(), "state": state, "reason": reason, "trials": counts}
        data["best"] = self._data(best)["trial"] if best else None
        return Message(f"{self._experiment}-end-{number}", "end", text, data)

    def _data(self, row: tuple[Any, ...]) -> dict[str, Json]:
        _, sequence, trial, state, reason, parameters, value, service, started, ended, *_ = row
        about = {"id": trial, "sequence": sequence, "state": state, "reason": reason, "service": service}
        about |= {"parameters": read_stored_value(parameters), "value": read_stored_value(value)}
        about |= {"started": _written(started), "ended": _written(ended)}
        return {"experiment": self._about(), "trial": about}

    def _about(self) -> dict[str, Json]:
        return {"id": self._experiment, "name": self._name}

    def _title(self) -> str:
        return f"{self._name} ({self._experiment})" if self._name else f"Experiment {self._experiment}"

    def _read_meta(self, key: str) -> str:
        found = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(found[0]) if found else ""


def read_position(path: Path) -> Position:
    """Return the position in a file; the beginning if there is none that can be read."""
    try:
        document = read_document(path, "remove it, and everything is sent again")
        best = document.fields.get("best")
        if best is not None and (isinstance(best, bool) or not isinstance(best, (int, float))):
            raise document.wrong("best", "a number")
        return Position(
            document.whole("revision", 0, 2**53) or 0,
            (document.whole("sequence", 0, 2**53) or 0) - 1,
            best,
            document.whole("ends", 0, 2**53) or 0,
            document.fields.get("over") is True,
        )
    except (FileNotFoundError, DamagedFile):
        return Position()


def write_position(path: Path, position: Position) -> None:
    """Write the position. Raises: OSError."""
    fields = {"revision": position.revision, "sequence": position.sequence + 1, "best": position.best}
    write_json(path, {**fields, "ends": position.ends, "over": position.over})


def _written(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, timezone.utc).isoformat()


def _plain(reason: str) -> str:
    """Return a reason, which a trial may have worded, without what chat programs act on: mentions and links.

    >>> _plain("<!channel> see <https://evil|this>, @all: 1 < 2")
    '< !channel> see < https://evil|this>, @ all: 1 < 2'
    """
    return re.sub(r"([<@])(?=\S)", r"\1 ", reason)
