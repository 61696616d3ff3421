"""What trackers and webhooks have not got yet, by the database and the positions that their processes have reached."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nnilite._answers.queries import Backlog
from nnilite._trackers.feed import find_position_file, unsent
from nnilite._webhooks.webhook_events import WebhookEventReader, read_position
from nnilite.errors import UnreadableFile
from nnilite.records import Json

FOLDER = "webhooks"
"""The folder of an experiment in which the positions of its webhooks are kept."""

_SHARE = 20  # looking takes at most a twentieth of the time
_MOST_MESSAGES = 1000


class Undelivered:
    """What the trackers and webhooks of one experiment have not got yet. `config`: its configuration as JSON."""

    def __init__(self, directory: Path, config: Mapping[str, Json], maximize: bool) -> None:
        self._directory, self._maximize = directory, maximize
        self._trackers, self._webhooks = _read_sections(config, "trackers"), _read_sections(config, "webhooks")
        self._known: tuple[Backlog, ...] = ()
        self._look_after = -math.inf

    @property
    def is_possible(self) -> bool:
        """Whether the experiment has any tracker or webhook."""
        return bool(self._trackers or self._webhooks)

    def look(self, database: Path) -> tuple[Backlog, ...]:
        """Return what is owed, as of some moments ago; what cannot be read now is as it was known before."""
        began = time.monotonic()
        if began >= self._look_after:
            with contextlib.suppress(sqlite3.Error, OSError, UnreadableFile):
                self._known = tuple(one for one in self._all(database) if one.is_any)
            taken_s = time.monotonic() - began
            self._look_after = began + taken_s + _SHARE * taken_s
        return self._known

    def _all(self, database: Path) -> Iterator[Backlog]:
        for number, tracker in enumerate(self._trackers):
            name = str(tracker.get("name"))
            trials, results = unsent(database, find_position_file(self._directory, number, name))
            yield Backlog(f"{name} (tracker)", trials=trials, results=results)
        for number, hook in enumerate(self._webhooks):
            yield Backlog(
                f"webhook {number + 1}", messages=self._count_messages(database, number, hook.get("events") or ())
            )

    def _count_messages(self, database: Path, number: int, kinds: Sequence[str]) -> int:
        reached = read_position(self._directory / FOLDER / f"{number}.json")
        count = 0
        with contextlib.closing(WebhookEventReader(database, self._directory.name, "", self._maximize)) as news:
            for message, _ in news.read_since(reached):
                count += message is not None and message.kind in kinds
                if count >= _MOST_MESSAGES:
                    break
        return count


def _read_sections(config: Mapping[str, Json], name: str) -> list[Mapping[str, Json]]:
    found = config.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
