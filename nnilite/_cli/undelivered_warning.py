"""What trackers and webhooks of an experiment have not got when its manager ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnilite._experiments import registry
from nnilite._experiments.documents import read_document
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import final_delivery, reading
from nnilite._running.manager_client import Client
from nnilite._running.manager_connection import Unreachable
from nnilite.errors import NniliteError


def hand_over(manager: Client, profile: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """Wait until everything is sent, or Ctrl-C. Return the last profile that is known."""
    if not final_delivery.may_owe(profile):
        return profile
    try:
        return final_delivery.wait_until_sent(manager, say)
    except KeyboardInterrupt:
        say("\nEnding without waiting any longer; what is not sent is kept.")
    except Unreachable:  # it was stopped meanwhile
        pass
    return profile


def warn_of_undelivered(entry: RegistryEntry) -> bool:
    """Warn of what trackers and webhooks have not got, after the manager's end. Return whether there is anything."""
    from nnilite._cli.nnictl import warn

    owed = _left(entry)
    if owed:
        warn(f"{final_delivery.sentence(owed, entry.id)}.")
    return bool(owed)


def _left(entry: RegistryEntry) -> list[dict[str, Any]]:
    try:
        config = read_document(entry.directory / "config.json", "restore it from a copy").fields
        if not (config.get("trackers") or config.get("webhooks")):
            return []
        # The manager has ended since `entry` was read: the registry knows the new state.
        with reading.opened(registry.entry(entry.id) or entry) as client:
            return final_delivery.find_undelivered(client.profile())
    except (NniliteError, OSError):  # it is gone, or cannot be read, which other commands report
        return []
