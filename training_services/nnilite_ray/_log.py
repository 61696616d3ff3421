"""The log of one job: the events of its keeper, and the trial's output between them.

Ray returns a log only as a whole. Its known part is removed, and a long log is read less often.
"""

from __future__ import annotations

import re

from nnilite.services.job_log import JobLog
from nnilite_ray._api import RayApi
from nnilite_ray._start import BEGIN

_ENTRYPOINT = b"Running entrypoint for job "
_BEGIN = re.compile(re.escape(BEGIN.encode()) + rb"(\d{1,11}\.\d{3})")
_BYTES_PER_S = 500_000  # so much of a running job's log is read on the average, at most


class RayLog(JobLog):
    """The log of the job of this name."""

    def __init__(self, api: RayApi, job: str) -> None:
        super().__init__()
        self._api = api
        self._job = job
        self._begun = False  # Ray's own lines have ended
        self.started: float | None = None
        """When the job began, in seconds since the epoch."""
        self.is_gone = False
        """Whether it was lost with its node."""

    async def read_on(self) -> None:
        if not self.is_gone:
            self.add_all(await self._api.log(self._job))

    def add_all(self, content: str) -> None:
        """Add the whole log."""
        text = content.encode("utf-8", "replace")
        self.last_read += len(text) / _BYTES_PER_S
        if len(text) < self.position:  # a log that was begun anew
            self.rewind()
        self.add_whole(text)

    def rewind(self) -> None:
        if not self.is_gone:  # What was read is all that exists.
            super().rewind()
            self._begun = False

    def is_foreign(self, line: bytes) -> bool:
        """Return whether the line is Ray's, or that of the program that runs on the node."""
        if line.startswith(BEGIN.encode()):
            found = _BEGIN.fullmatch(line)
            self.started = self.started or (float(found[1]) if found else None)
            return True
        was_begun, self._begun = self._begun, self._begun or line.startswith(_ENTRYPOINT)
        return not was_begun
