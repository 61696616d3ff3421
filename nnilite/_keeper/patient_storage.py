"""The shared storage of an attempt, which may be slow or missing for a while.

What is to be done with it is tried again with growing pauses, and given up when it makes no progress for too long. The
threads that do it may hang with the storage; their caller never does.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, List, Mapping, Optional

from .command_start import NO_PROCESS_CURE
from .storage import Storage, StorageError
from .storage_choice import open_storage

_PATIENCE_S = 60.0
_HANGS_S = 120.0  # more than any request takes by its own limit; a mounted folder that hangs has none
_PAUSE_S = (0.2, 5.0)
_LOOK_S = 0.2


class PatientStorage:
    """The storage of a specification's `entry`, opened when it is first needed."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.turn = threading.Lock()
        """Held by the thread that uses the storage."""
        self._entry = entry
        self._storage: Optional[Storage] = None
        self._progress = time.monotonic()
        self._bytes = self._most_bytes = 0  # bytes transferred in this try, and in the best one

    @property
    def title(self) -> str:
        """The storage's name in messages."""
        return "the shared storage" if self._storage is None else self._storage.title

    def open(self) -> Storage:
        """Return the storage. Raises: StorageError, OSError."""
        if self._storage is None:
            self._storage = open_storage(self._entry)
        return self._storage

    def moved(self, count: int) -> None:
        """Note that some bytes have come or gone: the storage is at work.

        It makes no progress while each try ends where one has ended before, as on a full disk.
        """
        self._bytes += count
        if self._bytes > self._most_bytes:
            self._most_bytes = self._bytes
            self._progress = time.monotonic()

    def run(self, work: Callable[[], None], wanted: Callable[[], bool], patience_s: Optional[float] = None) -> str:
        """Do some work in a thread, with patience while the storage is unreachable.

        Return why it was not done, or "".
        """
        limit = self._entry.get("patience_s", _PATIENCE_S) if patience_s is None else patience_s
        trouble: List[str] = []
        given_up = threading.Event()
        self._progress, self._most_bytes = time.monotonic(), 0

        def try_patiently() -> None:
            pause, longest = _PAUSE_S
            while True:
                try:
                    with self.turn:
                        self._bytes = 0
                        work()
                    return
                except (StorageError, OSError, ValueError) as error:
                    reason = "{}: {}".format(self.title, error)
                    if not getattr(error, "away", False) or time.monotonic() - self._progress >= limit:
                        trouble.append(reason)
                        return
                if given_up.wait(pause):
                    return
                pause = min(longest, 2 * pause)

        thread = _start_thread(try_patiently, wanted, limit)
        if thread is None:
            return "no thread can be started for {}{}".format(self.title, NO_PROCESS_CURE)
        late = self._await(thread, wanted, limit + _HANGS_S)
        given_up.set()
        return trouble[0] if trouble else late

    def _await(self, thread: threading.Thread, wanted: Callable[[], bool], limit_s: float) -> str:
        """Wait for a thread while it makes progress and is wanted. Return why its end was not awaited, or ""."""
        while thread.is_alive():
            thread.join(_LOOK_S)
            if thread.is_alive() and not wanted():
                return "there was no time left for {}".format(self.title)
            if time.monotonic() - self._progress > limit_s:
                return "{} has not answered for {:.0f} s".format(self.title, limit_s)
        return ""


def _start_thread(work: Callable[[], None], wanted: Callable[[], bool], limit_s: float) -> Optional[threading.Thread]:
    """Start a thread. Return None if the machine has no room for one within `limit_s`."""
    until = time.monotonic() + limit_s
    while True:
        thread = threading.Thread(target=work, name="storage", daemon=True)
        try:
            thread.start()
            return thread
        except RuntimeError:
            if not wanted() or time.monotonic() >= until:
                return None
        time.sleep(_PAUSE_S[0])
