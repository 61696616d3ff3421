"""The log of one pod, as it grows: the events of its keeper, and the trial's output between them.

It is followed by a thread while its container runs: kubelets carry a reader over to the next file when they rotate a
log, and give others only the file of now. Where it is not followed, as before and after, it is asked for from a time.
That is possible only in whole seconds, so each line is asked for with its time, and those that are known are left out.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence

from nnilite.platform_http import limited_by
from nnilite.records import KeeperEvent, Output
from nnilite.services.keeper_folder import MARK, read_log
from nnilite_kubernetes._api import ApiError, Cluster, LogStream

EVENT = MARK.encode()  # the prefix of lines with which keepers report events
_KEPT_BYTES = 16_000_000
_FOLLOW_S = 3.0  # at the earliest so long after a log was begun to be followed it is tried again
_LAST_LINES_S = 10.0  # time limit for the last lines of an ended container
# A trial may print faster than its manager reads: the rest waits in the connection, and is read from there later.
_UNREAD_BYTES = 8_000_000
_LAST_BYTES = 100_000_000  # of a container that has ended: twice what a kubelet keeps
_FETCH_S = 600.0  # for all that is there
_UNREAD_S = 60.0  # who waits so long to be read stops to follow
_LONGEST_LINE_BYTES = 4_000_000  # a keeper's events are shorter
_FOLLOWERS = threading.BoundedSemaphore(250)  # for this process; logs of further trials are polled

_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT")

log = logging.getLogger(__name__)


class PodLog:
    """Reads a log; each `read` returns only what is new."""

    def __init__(self, cluster: Cluster, namespace: str, pod: str, container: str) -> None:
        self._cluster = cluster
        self._place = (namespace, pod, container)
        self._lock = threading.Condition()
        self._last = b""  # the time of the last line known
        self._same = 0  # how many known lines have that time
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._is_ending = False  # what is left is then taken at once; kubelets keep some files of each log
        self._kept = bytearray()
        self._offset = 0
        self._next = 0.0
        self._thread: threading.Thread | None = None
        self._stream: LogStream | None = None

    def read(self, with_output: bool, ended: bool = False) -> Sequence[KeeperEvent]:
        """Return new events; `with_output`: also the trial's output, as events of standard output. Raises: ApiError.

        `ended`: so has the container, and all that is left of its log is waited for.
        """
        if ended:
            self._finish()
        with self._lock:
            self._fetch()
            lines, self._unread, self._unread_bytes = self._unread, [], 0
            self._lock.notify_all()
        events: list[KeeperEvent] = list(read_log(b"\n".join(line for line in lines if line.startswith(EVENT))))
        text = b"".join(line + b"\n" for line in lines if not line.startswith(EVENT))
        if text and with_output:
            events.insert(0, Output("stdout", self._offset, text))
            self._offset += len(text)
        return events

    def follow(self) -> None:
        """See to it that a thread follows the log, unless it has just failed to. Raises: ApiError."""
        with self._lock:
            if self._is_followed or time.monotonic() < self._next:
                return
            self._next = time.monotonic() + _FOLLOW_S
            if not _FOLLOWERS.acquire(blocking=False):
                self._fetch()
                return
            # Daemons: the end of this process does not wait for them.
            arguments = (self._since(), self._make_taker())
            self._thread = threading.Thread(target=self._follow, args=arguments, name="follow-log", daemon=True)
            self._thread.start()

    def output(self, offset: int, limit: int) -> bytes:
        """Return the trial's output. Raises: ApiError."""
        with self._lock:
            self._fetch()
            return bytes(self._kept[offset : offset + limit])

    @property
    def _is_followed(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _follow(self, since: str, take: Callable[[bytes], None]) -> None:
        try:
            self._stream = stream = self._cluster.follow_log(*self._place, since=since)
            with contextlib.closing(stream.lines(whole=True, longest=_LONGEST_LINE_BYTES)) as lines:
                for line in lines:
                    with self._lock:
                        if not self._lock.wait_for(self._has_room, _UNREAD_S):
                            return
                        take(line)
        except ApiError as error:  # not started yet, gone, or broken off: the next look continues from here
            log.debug("the log of %s cannot be followed now: %s", self._place[1], error)
            if error.status == 400:
                self._next = 0.0  # the container has not started: the next look may find that it has
        finally:
            _FOLLOWERS.release()

    def _has_room(self) -> bool:
        return self._unread_bytes < (_LAST_BYTES if self._is_ending else _UNREAD_BYTES)

    def _finish(self) -> None:
        """Wait for the thread, which comes to the log's end by itself."""
        with self._lock:
            self._is_ending = True
            self._lock.notify_all()
        thread, stream = self._thread, self._stream
        if thread is None:
            return
        thread.join(_LAST_LINES_S)
        if thread.is_alive() and stream is not None:
            stream.stop()
            thread.join(_LAST_LINES_S)

    def _fetch(self) -> None:
        """Take the lines that are new, without their times, unless a thread does that."""
        if self._is_followed:
            return
        try:
            stream = self._cluster.pod_log(*self._place, since=self._since())
        except ApiError as error:
            if error.status in (400, 404):  # not started yet, or gone
                return
            raise
        take, whole = self._make_taker(), stream.lines(whole=True, longest=_LONGEST_LINE_BYTES)
        with limited_by(_FETCH_S, stream.stop), contextlib.closing(whole) as lines:
            for line in lines:
                take(line)
                if not self._has_room():
                    return  # the next look goes on here

    def _since(self) -> str:
        """Return the second of the last line that is known, "" if none is."""
        return self._last.partition(b".")[0].rstrip(b"Z").decode("ascii") + "Z" if self._last else ""

    def _make_taker(self) -> Callable[[bytes], None]:
        """Return what takes the lines of one answer, which begins with some that are known."""
        last, known = self._last, self._same

        def take(line: bytes) -> None:
            nonlocal known
            stamp, _, text = line.partition(b" ")
            # Where a kubelet cannot read the log it answers with a sentence of its own, which has no time.
            if not _STAMP.match(stamp) or stamp < last:
                return
            if stamp == last and known:
                known -= 1
                return
            self._same = self._same + 1 if stamp == self._last else 1
            self._last = stamp
            self._unread.append(text)
            self._unread_bytes += len(text) + 1
            if not text.startswith(EVENT) and len(self._kept) < _KEPT_BYTES:
                self._kept += text + b"\n"

        return take
