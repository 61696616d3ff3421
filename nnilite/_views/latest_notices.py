"""The notices of an experiment for its profile, which is asked for all the time and must not depend on the disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence

from nnilite._store.notices import find_notices
from nnilite._store.reader import Reader
from nnilite.errors import StoreError

log = logging.getLogger(__name__)

_PATIENCE_S = 2.0


class LatestNotices:
    """Reads the notices, and keeps the last ones while the database cannot be read or does not answer."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._known: Sequence[str] = ()
        self._has_failed = False
        self._reading: asyncio.Task[None] | None = None  # at most one: on a hanging disk, more would pile up

    async def find(self, objectives: Iterable[str], can_preload: bool, searched: Collection[str] = ()) -> Sequence[str]:
        """Return the notices of now or, if reading fails or takes longer than two seconds, those known before."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(objectives, can_preload, searched))
        await asyncio.wait([self._reading], timeout=_PATIENCE_S)
        return self._known

    async def _read(self, objectives: Iterable[str], can_preload: bool, searched: Collection[str]) -> None:
        try:
            self._known = await self._reader.ask(find_notices, objectives, can_preload, searched)
        except StoreError:  # whatever needs the database reports this itself
            return
        except Exception:  # a mistake of ours, which no one would see in a task that is not awaited
            if not self._has_failed:
                log.exception("the notices of the experiment cannot be found; those known before stay")
            self._has_failed = True
