"""Sentences that a person should know about an experiment's results: what its start noted, and missing numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nnilite._store.start_share import find_start_share
from nnilite.tuning.result_constraints import NOT_REPORTED

NOTICES = "notices"
"""The key in the table `meta` of the sentences that the start of the experiment noted, as a list in JSON."""

TEACHES_NOTHING = "searchFrom teaches the tuner nothing"
"""The begin of the sentence where no result of `searchFrom` could be taken."""


def are_sentences(text: str) -> bool:
    """Return whether a text of the table `meta` is such a list."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, list) and all(isinstance(one, str) for one in found)


def find_notices(rows: Callable[..., list[Any]], objectives: Iterable[str], can_preload: bool = False) -> list[str]:
    """Return the sentences. `rows(query, *values)` reads from the database.

    `can_preload`: whether the trials could start with preloaded modules, and do not.
    """
    start = find_start_share(rows) if can_preload else ""
    return [*_find_about_results(rows, objectives), *([start] if start else [])]


def _find_about_results(rows: Callable[..., list[Any]], objectives: Iterable[str]) -> list[str]:
    noted = [
        one
        for (text,) in rows("SELECT value FROM meta WHERE key = ?", NOTICES)
        if are_sentences(text)
        for one in json.loads(text)
    ]
    succeeded = "SELECT COUNT(*) FROM trials WHERE state = 'SUCCEEDED'"
    total = int(rows(succeeded)[0][0])
    noted += _find_broken(rows, f"{succeeded} AND violates != ''", total)
    if list(objectives) != ["default"]:
        return noted
    without = int(rows(f"{succeeded} AND score IS NULL")[0][0])
    if not without:
        return noted
    have = "has" if without == 1 else "have"
    return [
        *noted,
        f"{without} of {total} succeeded trials {have} no finite number as a final result, "
        "so the tuner cannot learn from it; the reason of each trial says more",
    ]


def _find_broken(rows: Callable[..., list[Any]], violating: str, total: int) -> Iterator[str]:
    """Yield what a person should know about results that break constraints, which the query `violating` counts."""
    broken = int(rows(violating)[0][0])
    if broken and broken == total:
        yield f"all results so far break resultConstraints ({total}), so no trial is the best"
    silent = int(rows(f"{violating} AND violates LIKE ?", f"%{NOT_REPORTED}%")[0][0])
    if silent:
        have, they = ("lacks", "it is") if silent == 1 else ("lack", "they are")
        yield (
            f"{silent} of {total} results {have} a number that resultConstraints need, so {they} never the best; "
            "report it in the final result, a dict"
        )
