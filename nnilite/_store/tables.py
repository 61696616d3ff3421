"""Answers questions about many trials at once. SQLite makes JSON of the rows, while other Python threads can work.

To compute the importance of parameters takes seconds of Python. A child process does it, one at a time, and its
answer is kept until results have come or changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnilite._answers.bulk_queries import (
    ATTEMPT_FIELDS,
    TRIAL_FIELDS,
    Curve,
    Importance,
    ImportanceMethod,
    PageCursor,
    RowPage,
    Table,
)
from nnilite._store.reader import Reader
from nnilite._store.rows import LATEST
from nnilite._store.stored_values import read_stored_value
from nnilite.errors import ServiceError
from nnilite.records import Json
from nnilite.services.module_command import module_command

Rows = Callable[..., list[Any]]

_IMPORTANCE_TIMEOUT_S = 120.0
_SAMPLE_MAX = 2000  # trials that the importance is computed from
_FEW = 4  # fewer trials say nothing
_ANSWERS_MAX = 32  # answers that are kept

_JSON_OR_TEXT = "CASE WHEN json_valid({0}) THEN json({0}) ELSE {0} END"
_LAST = "MAX(printf('%016d-%016d', {}, {}))"  # the largest pair of numbers: MAX accepts no pairs
_JSON = ("parameters", "value", "latest", "attributes")  # columns with JSON texts, which the answer has as JSON
_TRIAL_ROW = ", ".join(_JSON_OR_TEXT.format(name) if name in _JSON else name for name in (*TRIAL_FIELDS, "latest"))
_TRIAL_ROWS = f"""
SELECT json_group_array(json_array({_TRIAL_ROW})), COUNT(*), {_LAST.format("revision", "sequence")}
FROM (
  SELECT {", ".join(TRIAL_FIELDS)}, revision, {LATEST} AS latest
  FROM trials t WHERE (revision, t.sequence) > (?, ?) ORDER BY revision, t.sequence LIMIT ?)
"""
# The output of a failed command may be long; its first lines tell failures apart.
_ATTEMPT_CELLS = {"trial": "t.id AS trial", "message": "substr(a.message, 1, 300) AS message"}
_ATTEMPT_ROW = ", ".join(_ATTEMPT_CELLS.get(name, f"a.{name}") for name in ATTEMPT_FIELDS)
_ATTEMPT_ROWS = f"""
SELECT json_group_array(json_array(sequence, {", ".join(ATTEMPT_FIELDS)})),
  COUNT(*), {_LAST.format("sequence", "number")}
FROM (
  SELECT a.trial AS sequence, {_ATTEMPT_ROW}
  FROM attempts a JOIN trials t ON t.sequence = a.trial
  WHERE (a.trial, number) > (?, ?) ORDER BY a.trial, number LIMIT ?)
"""


class BulkReader:
    """Answers questions about many trials at once."""

    def __init__(self, reader: Reader, objectives: Mapping[str, str]) -> None:
        self._reader = reader
        self._objectives = objectives
        # By the question: the state of the results (see `_read_state_of_results`), and the answer.
        self._importance: dict[tuple[ImportanceMethod, str, bool], tuple[tuple[int, int], Importance]] = {}
        self._computing = asyncio.Lock()

    async def rows(self, table: Table, after: PageCursor, limit: int) -> RowPage:
        return await self._reader.ask(_page, _TRIAL_ROWS if table is Table.TRIALS else _ATTEMPT_ROWS, after, limit)

    async def curves(self, trials: Sequence[str], points: int, key: str) -> Sequence[Curve]:
        return await self._reader.ask(_curves, trials, points, key)

    async def importance(self, method: ImportanceMethod, key: str, stopped: bool = False) -> Importance:
        """Return how much each parameter matters for the number `key` of the final results.

        With `stopped`, trials that were stopped early count with their latest results.

        Raises: ServiceError if the computation takes too long or fails.
        """
        async with self._computing:
            known = await self._reader.ask(_read_state_of_results, stopped)
            kept = self._importance.get((method, key, stopped))
            if kept is None or kept[0] != known:
                scored = await self._reader.ask(_read_scored, key, stopped)
                found = await _compute(method, scored, self._objectives.get(key, "minimize"))
                if len(self._importance) >= _ANSWERS_MAX:
                    self._importance.clear()
                kept = self._importance[method, key, stopped] = (known, found)
            return kept[1]


def _page(rows: Rows, query: str, after: PageCursor, limit: int) -> RowPage:
    text, count, last = rows(query, after.major, after.minor, limit)[0]
    return RowPage(text, count, PageCursor(*map(int, last.split("-"))) if count else after)


def _curves(rows: Rows, trials: Sequence[str], points: int, key: str) -> list[Curve]:
    return [found for trial in trials if (found := _get_curve(rows, trial, points, key)) is not None]


def _get_curve(rows: Rows, trial: str, points: int, key: str) -> Curve | None:
    place = rows("SELECT sequence, attempt FROM trials WHERE id = ?", trial)
    if not place:
        return None
    last = rows("SELECT MAX(sequence) FROM metrics WHERE trial = ? AND attempt = ? AND final = 0", *place[0])[0][0]
    every = max(math.ceil(((last or 0) + 1) / points), 1)
    # The last point is always included: it shows where the curve ends.
    found = rows(
        "SELECT sequence, value FROM metrics WHERE trial = ? AND attempt = ? AND final = 0 "
        "AND (sequence % ? = 0 OR sequence = ?) ORDER BY idx",
        *(*place[0], every, last),
    )
    return Curve(trial, [step for step, _ in found], [_number(read_stored_value(text), key) for _, text in found])


def _number(value: Json, key: str) -> float | None:
    if isinstance(value, dict):
        value = value.get(key)
    elif key != "default":
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else None


_WITH_RESULT = "(t.state = 'SUCCEEDED' AND t.value IS NOT NULL OR ? AND t.state = 'EARLY_STOPPED')"


def _read_state_of_results(rows: Rows, stopped: bool) -> tuple[int, int]:
    """Return how many trials have a result, and the latest change of one, such as by a further attempt."""
    found = rows(f"SELECT COUNT(*), COALESCE(MAX(revision), 0) FROM trials t WHERE {_WITH_RESULT}", stopped)
    return int(found[0][0]), int(found[0][1])


def _read_scored(rows: Rows, key: str, stopped: bool) -> list[tuple[str, float]]:
    """Return parameters (JSON) and the number `key` of all trials that have it, evenly spread ones if they are many."""
    found = rows(
        f"SELECT parameters, COALESCE(value, {LATEST}) FROM (SELECT t.*, ROW_NUMBER() OVER (ORDER BY t.sequence) "
        f"AS place FROM trials t WHERE {_WITH_RESULT}) t WHERE place % ? = 0",
        *(stopped, max(math.ceil(_read_state_of_results(rows, stopped)[0] / _SAMPLE_MAX), 1)),
    )
    numbers = ((parameters, _number(read_stored_value(text), key)) for parameters, text in found if text is not None)
    return [(parameters, number) for parameters, number in numbers if number is not None]


async def _compute(method: ImportanceMethod, scored: Sequence[tuple[str, float]], direction: str) -> Importance:
    if len(scored) < _FEW:
        return Importance(method, len(scored), (), f"this needs at least {_FEW} trials with a finite metric")
    question = json.dumps({"method": method.value, "trials": scored, "direction": direction})
    answer = json.loads(await _ask_child(question))
    shares = [(str(name), float(share)) for name, share in answer["shares"]]
    intervals = [(float(low), float(high)) for low, high in answer["intervals"]]
    return Importance(ImportanceMethod(answer["method"]), len(scored), shares, str(answer["reason"]), intervals)


async def _ask_child(question: str) -> bytes:
    """Return the answer of the child process that computes importance. Raises: ServiceError."""
    child = await asyncio.create_subprocess_exec(
        *module_command("nnilite._store.importance"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Numerical libraries would otherwise take all processors from the trials.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        out, err = await asyncio.wait_for(child.communicate(question.encode()), _IMPORTANCE_TIMEOUT_S)
    except (TimeoutError, asyncio.TimeoutError):
        sentence = f"the importance of parameters was not found within {_IMPORTANCE_TIMEOUT_S:.0f} s"
        raise ServiceError(sentence) from None
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
    if child.returncode != 0:
        last = err.decode(errors="replace").strip().rpartition("\n")[2]
        raise ServiceError(f"the importance of parameters could not be computed: {last}")
    return out
