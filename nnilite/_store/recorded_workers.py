"""Finds what trials ran with on their hosts: Python, packages and GPUs, as each host and Python has said once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from nnilite._sdk.worker_facts import NAME
from nnilite._store.stored_values import read_stored_value
from nnilite.records import Json

_MOST_ROWS = 2000
_MOST_CHARS_READ = 20_000_000  # in all rows: a trial may report any number of texts, of megabytes each
_MOST_PACKAGES = 5000
_MOST_GPUS = 64
_MOST_CHARS = 300
_VERSION = re.compile(r"\d+(\.\d+)+")
_TEXTS = ("python", "executable", "system")
_KEYS = (
    "SELECT x.trial, x.attempt, x.idx, a.host, x.time, LENGTH(x.value) AS size FROM attributes x "
    "JOIN attempts a ON a.trial = x.trial AND a.number = x.attempt WHERE x.name = ? ORDER BY x.time DESC LIMIT ?"
)
_QUERY = (
    "SELECT x.value, k.host, k.time FROM "
    f"(SELECT *, SUM(size) OVER (ORDER BY time DESC, trial, attempt, idx) AS total FROM ({_KEYS})) k "
    "JOIN attributes x ON x.trial = k.trial AND x.attempt = k.attempt AND x.idx = k.idx "
    "WHERE k.total <= ? ORDER BY k.time DESC"
)


def find_workers(rows: Callable[..., list[Any]]) -> list[dict[str, Json]]:
    """Return what trials ran with, once for all hosts that have the same; what was said last comes first.

    `hosts` has for each of them the latest time when it said so, in seconds since the epoch by its own clock.
    `rows(query, *values)` reads from the database.
    """
    found: dict[str, dict[str, Any]] = {}
    for text, host, time in rows(_QUERY, NAME, _MOST_ROWS, _MOST_CHARS_READ):
        value = read_stored_value(text)
        facts = _check_facts(value)
        if facts is not None:
            one = found.setdefault(json.dumps(facts, sort_keys=True), {"hosts": {}, **facts})
            one["hosts"].setdefault(host or _shorten(value["host"]), time)
    return list(found.values())


def _check_facts(value: Json) -> dict[str, Json] | None:
    """Return what a trial has said, as far as it is of the right form: anything may come from a trial."""
    if not isinstance(value, Mapping) or not isinstance(value.get("packages"), Mapping):
        return None
    pairs = sorted(value["packages"].items())[:_MOST_PACKAGES]
    packages = {_shorten(name): _shorten(version) for name, version in pairs}
    gpus = _parse_gpus(value.get("gpus"))
    return {**{name: _shorten(value.get(name, "")) for name in _TEXTS}, "packages": packages, "gpus": gpus}


def _parse_gpus(lines: Json) -> list[Json]:
    """Return model and driver of each GPU, such as "Tesla T4, 535.129.03", by what its driver's files begin with."""
    if not isinstance(lines, list) or not lines:  # earlier versions did not say them
        return []
    about, *models = (_shorten(line).partition("\n")[0] for line in lines[: _MOST_GPUS + 1])
    driver = next((word for word in about.split() if _VERSION.fullmatch(word)), "unknown driver")
    return [f"{model.partition(':')[2].strip()}, {driver}" for model in models if model.startswith("Model:")]


def _shorten(value: Json) -> str:
    return str(value)[:_MOST_CHARS]
