"""Waits until trackers and webhooks have everything, before the manager of a finished experiment is ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnilite._running.manager_client import Client

STILL_S = 60.0
"""How long nothing may be accepted before the wait ends."""

MOST_S = 3600.0
"""The longest wait."""

_POLL_S = 0.2
_SETTLED_S = 0.5  # what was stored in the last moment is counted by then
_SHOWN_EVERY_S = 10.0
_USUAL_S = 2.0  # the usual moment that the last results take

Backlogs = Sequence[dict[str, Any]]


def wait_until_sent(manager: Client, tell: Callable[[str], None]) -> dict[str, Any]:
    """Wait while something is owed and is being sent; return the last profile, which says what is still owed.

    `tell` is called with a sentence now and then. Raises: Unreachable if the manager ends meanwhile.
    """
    began = still_since = time.monotonic()
    shown, shown_s, least = "", began + _USUAL_S - _SHOWN_EVERY_S, None
    while True:
        now = time.monotonic()
        profile = manager.profile()
        owed = find_undelivered(profile)
        left = sum(amounts(one) for one in owed)
        if least is None or left < least:
            least, still_since = left, now
        if (not owed and now > began + _SETTLED_S) or now > still_since + STILL_S or now > began + MOST_S:
            return profile
        line = (
            f"Waiting until trackers and webhooks have everything: {describe_undelivered(owed)}; Ctrl-C stops waiting"
        )
        if owed and line != shown and now > shown_s + _SHOWN_EVERY_S:
            tell(line)
            shown, shown_s = line, now
        time.sleep(_POLL_S)


def may_owe(profile: Mapping[str, Any]) -> bool:
    """Return whether there is something to wait for: trackers or webhooks, and a manager that keeps running."""
    config = profile.get("config") or {}
    return bool(config.get("trackers") or config.get("webhooks")) and profile["state"] != "STOPPED"


def find_undelivered(profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what is owed by the profile of a manager; one of an earlier version does not have it."""
    return list(profile.get("owed") or [])


def amounts(owed: dict[str, Any]) -> int:
    return int(owed["trials"] + owed["results"] + owed["messages"])


def describe_undelivered(owed: Backlogs) -> str:
    """Return `mlflow (tracker) has not got 2 trials and 40 results, webhook 1 has not got 3 messages`."""
    return ", ".join(f"{one['name']} has not got {_amount(one)}" for one in owed)


def sentence(owed: Backlogs, experiment: str) -> str:
    """Return what is still owed and to which receiver, and the command that sends it."""
    return (
        f"{describe_undelivered(owed)}; `nnictl resume {experiment} --foreground` sends the rest, and log/ may show why"
    )


def _amount(one: dict[str, Any]) -> str:
    parts = []
    for name in ("trial", "result", "message"):
        count = one[f"{name}s"]
        if count:
            parts.append(f"{count} {name}{'' if count == 1 else 's'}")
    return " and ".join(parts)
