"""Sentences that a person should know about an experiment's results: what its start noted, and missing numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from nnilite._store.start_share import find_start_share
from nnilite._store.stored_values import read_stored_value
from nnilite.tuner import EXTRAS
from nnilite.tuning.result_constraints import NOT_REPORTED

NOTICES = "notices"
"""The key in the table `meta` of the sentences that the start of the experiment noted, as a list in JSON."""

TEACHES_NOTHING = "searchFrom teaches the tuner nothing"
"""The begin of the sentence where no result of `searchFrom` could be taken."""

_FIRST = 20  # trials that are examined
_SHOWN = 3  # names in a sentence


def are_sentences(text: str) -> bool:
    """Return whether a text of the table `meta` is such a list."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, list) and all(isinstance(one, str) for one in found)


def find_notices(
    rows: Callable[..., list[Any]],
    objectives: Iterable[str],
    can_preload: bool = False,
    searched: Collection[str] = (),
) -> list[str]:
    """Return the sentences. `rows(query, *values)` reads from the database.

    `can_preload`: whether the trials could start with preloaded modules, and do not. `searched`: the names in the
    search space with which the experiment began, if its tuner may propose others by mistake.
    """
    start = find_start_share(rows) if can_preload else ""
    odd = _find_names_not_searched(rows, searched) if searched else ""
    return [*_find_about_results(rows, objectives), *filter(None, (odd, start))]


def _find_names_not_searched(rows: Callable[..., list[Any]], searched: Collection[str]) -> str:
    """Return a sentence if the tuner proposes names that the search space does not have; "" otherwise."""
    query = "SELECT parameters FROM trials WHERE sequence < ? AND source = 'algorithm' ORDER BY sequence"
    for (text,) in rows(query, _FIRST):
        proposed = read_stored_value(text)
        names = set(proposed).difference(searched, EXTRAS) if isinstance(proposed, dict) else ()
        if names:
            shown = ", ".join(sorted(names)[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            are, them = ("is", "it") if len(names) == 1 else ("are", "them")
            return f"the tuner proposes {shown}, which {are} not in the search space; trials get {them} as proposed"
    return ""


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
