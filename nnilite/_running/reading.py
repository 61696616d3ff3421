"""Opens any experiment for reading: by its manager if it has one, else by its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nnilite._experiments.registry import RegistryEntry
from nnilite._running import managers
from nnilite._running.manager_client import Client


@contextmanager
def opened(entry: RegistryEntry, *, timeout_s: float = managers.ANSWER_TIMEOUT_S) -> Iterator[Client]:
    """Yield a client for reading. Raises: NniliteError if the manager does not answer, or the folder cannot be read."""
    if entry.alive:
        with managers.connect(entry, timeout_s=timeout_s) as found:
            yield found
        return
    from nnilite._running import offline

    with offline.opened(entry) as found:
        yield found
