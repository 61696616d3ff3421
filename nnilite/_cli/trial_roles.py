"""The processes of a distributed trial, or the pods of one with roles, as its attempt has recorded them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nnilite._cli import screen
from nnilite.errors import NniliteError

if TYPE_CHECKING:
    from nnilite._running.manager_client import Client

_MOST_BYTES = 4_000_000
_LATEST_S = 1e11
_ENDED = ("SUCCEEDED", "FAILED", "CANCELED", "LOST")


def read_roles(manager: Client, trial: dict[str, Any], files: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of the latest attempt. They are copied from its machine if the trial is a distributed one.

    A worker writes them, so anything that is not a record is left out; without a file that can be read there are none.
    """
    name = f"{trial['attempt']}/roles.json"
    here = any(file["path"] == name for file in files)
    if not here and not (trial["attempts"] and manager.profile()["config"].get("distributed")):
        return []
    text = bytearray()

    def write(piece: bytes) -> None:
        text.extend(piece)
        if len(text) > _MOST_BYTES:
            raise NniliteError(f"{name} has more than {_MOST_BYTES} bytes")

    try:
        manager.download(trial["id"], name, write)
        found = json.loads(text)
    # Its machine may be away, and the rest of the trial is shown all the same.
    except (NniliteError, ValueError, RecursionError):
        return []
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    over = next((one["state"] in _ENDED for one in trial["attempts"] if one["number"] == trial["attempt"]), False)
    return [{**entry, "state": _last_state(entry.get("state"), over)} for entry in entries]


def _last_state(state: object, over: bool) -> object:
    """Return LOST for a role whose end was never recorded, although its attempt is over."""
    return "LOST" if over and state == "RUNNING" else state


def show_roles(roles: Sequence[dict[str, Any]]) -> None:
    """Print a table of them, if there are any."""
    if not roles:
        return
    print("\nRanks" if all(role.get("role") == "rank" for role in roles) else "\nRoles")
    columns: tuple[str, ...] = ("ROLE", "RANK", "HOST", "STATE", "EXIT", "TIME", "REASON")
    rows = [_row(role) for role in roles]
    # Those of an elastic trial may have been started several times.
    starts = [start for role in roles if type(start := role.get("start")) is int]
    if any(starts):
        columns = ("START", *columns)
        rows = [(_count_from_1(role.get("start")), *row) for role, row in zip(roles, rows, strict=True)]
    screen.show_table(columns, rows, "", ("REASON",))


def _count_from_1(start: object) -> object:
    return start + 1 if isinstance(start, int) and abs(start) < 1e9 else None


def read_time(role: Mapping[str, Any], name: str) -> float | None:
    """Return a time of a record; None if it has none, or something else in its place."""
    found = role.get(name)
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return float(found) if is_number and found is not None and abs(found) < _LATEST_S else None


def _row(role: dict[str, Any]) -> tuple[object, ...]:
    started, ended, time = read_time(role, "started"), read_time(role, "ended"), None
    if started is not None and ended is not None:
        time = screen.span(ended - started)
    plain = [role.get(name) for name in ("role", "rank", "host", "state", "exitCode")]
    return (*plain, time, screen.brief(str(role.get("reason") or "")))
