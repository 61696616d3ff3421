"""Which connections are those of trials, so that none of them takes the room of all others.

A trial's token is known to its program, and to the root of its worker. Such a program may open connections without
end, and send requests on them that do not end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tornado.iostream import IOStream

REST = 8
"""One of so many parts of the room is not for trials."""

SHARE = 4
"""One of so many parts of the room is the most for one trial: hundreds of nodes may belong to it."""


class TrialConnections:
    """The connections with a request that had the token of a trial, by that trial's job."""

    def __init__(self) -> None:
        self._jobs: dict[IOStream, str] = {}
        self._streams: dict[str, set[IOStream]] = {}

    def find_job(self, stream: IOStream) -> str:
        """Return the job whose token the connection had first; "" if it is none of a trial."""
        return self._jobs.get(stream, "")

    def find_full(self, stream: IOStream | None, job: str, most: int) -> Iterator[Collection[IOStream]]:
        """Yield the connections to choose from if one has to go before this one is the job's: its own, or all.

        `most`: how many connections there may be in all.
        """
        if stream in self._jobs:
            return
        if len(own := self._streams.get(job, ())) >= max(most // SHARE, 1):
            yield own
        if len(self._jobs) >= most - most // REST:
            yield self._jobs

    def add(self, stream: IOStream, job: str) -> None:
        self._jobs[stream] = job
        self._streams.setdefault(job, set()).add(stream)

    def remove(self, stream: IOStream) -> None:
        job = self._jobs.pop(stream, None)
        if job is None:
            return
        self._streams[job].discard(stream)
        if not self._streams[job]:
            del self._streams[job]
