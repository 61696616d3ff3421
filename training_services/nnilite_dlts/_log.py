"""Read the log of one job, piece by piece.

DLTS has three kinds of logs, and its answers differ accordingly. With Elasticsearch there are pages, each with the
cursor of the next; the last cursor is kept and used for later lines. With Azure's blobs each answer is the end of the
log, 1 MB at most, without a cursor; its known part is removed. Older clusters return the whole log. Where no log is
kept, `callback: log` cannot work.
"""

from __future__ import annotations

from nnilite.services.job_log import JobLog
from nnilite_dlts._api import DltsApi

_PAGES_AT_ONCE = 200


class DltsLog(JobLog):
    """The log of all pods of a job."""

    def __init__(self, api: DltsApi, job_id: str) -> None:
        super().__init__()
        self._api = api
        self._job_id = job_id
        self._cursor: str | None = None

    def rewind(self) -> None:
        super().rewind()
        self._cursor = None

    async def read_on(self) -> None:
        for _ in range(_PAGES_AT_ONCE):
            pods, cursor = await self._api.log(self._job_id, self._cursor)
            paged = cursor is not None or self._cursor is not None
            take = self.add if paged else self.add_whole
            for pod, text in pods.items():
                take(text.encode("utf-8", "replace"), pod)
            if cursor is None or cursor == self._cursor:
                return
            self._cursor = cursor
