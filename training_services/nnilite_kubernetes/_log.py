"""The log of one pod, read in pieces: the events of its keeper, and the trial's output between them.

The API server returns a log only from a given time on, in whole seconds. So each line is requested with its time, and
known lines are left out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from nnilite.records import KeeperEvent, Output
from nnilite.services.keeper_folder import MARK, read_log
from nnilite_kubernetes._api import ApiError, Cluster

EVENT = MARK.encode()  # what lines begin with by which keepers tell events
_KEPT_BYTES = 16_000_000
_FOLLOW_S = 3.0


class PodLog:
    """Reads a log; each `read` returns only what is new."""

    def __init__(self, cluster: Cluster, namespace: str, pod: str, container: str) -> None:
        self._cluster = cluster
        self._place = (namespace, pod, container)
        self._lock = threading.Lock()
        self._last = b""  # the time of the last line known
        self._same = 0  # how many known lines have that time
        self._unread: list[bytes] = []
        self._kept = bytearray()
        self._offset = 0
        self._next = 0.0

    def read(self, with_output: bool) -> Sequence[KeeperEvent]:
        """Return new events; `with_output`: also the trial's output, as events of standard output. Raises: ApiError."""
        with self._lock:
            self._fetch()
            lines, self._unread = self._unread, []
        events: list[KeeperEvent] = list(read_log(b"\n".join(line for line in lines if line.startswith(EVENT))))
        text = b"".join(line + b"\n" for line in lines if not line.startswith(EVENT))
        if text and with_output:
            events.insert(0, Output("stdout", self._offset, text))
            self._offset += len(text)
        return events

    def follow(self) -> None:
        """Fetch what is new, unless that was done just now. Raises: ApiError."""
        with self._lock:
            if time.monotonic() > self._next:
                self._next = time.monotonic() + _FOLLOW_S
                self._fetch()

    def output(self, offset: int, limit: int) -> bytes:
        """Return the trial's output. Raises: ApiError."""
        with self._lock:
            self._fetch()
            return bytes(self._kept[offset : offset + limit])

    def _fetch(self) -> None:
        """Take the lines that are new, without their times."""
        since = self._last.partition(b".")[0].rstrip(b"Z").decode("ascii") + "Z" if self._last else ""
        try:
            data = self._cluster.pod_log(*self._place, since=since)
        except ApiError as error:
            if error.status in (400, 404):  # not started yet, or gone
                return
            raise
        known = self._same
        for line in data.split(b"\n")[:-1]:
            stamp, _, text = line.partition(b" ")
            if stamp < self._last:
                continue
            if stamp == self._last and known:
                known -= 1
                continue
            self._same = self._same + 1 if stamp == self._last else 1
            self._last = stamp
            self._unread.append(text)
            if not text.startswith(EVENT) and len(self._kept) < _KEPT_BYTES:
                self._kept += text + b"\n"
