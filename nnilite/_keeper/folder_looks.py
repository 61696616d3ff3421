"""Looks at the folders of trials, one after the other, so that one whose disk hangs does not hold up the others.

A call that hangs in a file system cannot be ended. So a look is abandoned after a limit: its thread is left alone with
it, the folder is set aside with a reason, and another thread continues with the other folders. A folder that is set
aside is not examined again before that thread has finished, and the number of hanging threads is limited. A late result
is returned to the next caller that asks for the same look.

A thread that has made all looks waits a while for further ones, since to start another takes longer than most looks.
"""

from __future__ import annotations

import errno
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

_LIMIT_S = 2.0
_MOST_HANGING = 16
_LATE_FOR_S = 60.0
_IDLE_S = 10.0


class FolderHangs(OSError):
    """A folder is not looked at now, since an earlier look at it hangs."""


class FolderLook(NamedTuple):
    """Something to be done in a folder.

    Looks with one name give the same result; a look without a name is made each time.
    """

    folder: str
    name: str
    work: Callable[[], Any]


class LookResult(NamedTuple):
    """What a look has found, or the error that it has raised."""

    value: Any = None
    error: Optional[OSError] = None

    def get(self) -> Any:
        """Return the value. Raises: OSError."""
        if self.error is not None:
            raise self.error
        return self.value


class FolderLooks:
    """Any thread may call any method. `look` and `look_at_all` block, for the limit and little more."""

    def __init__(self, limit_s: float = _LIMIT_S, most_hanging: int = _MOST_HANGING) -> None:
        self.limit_s = limit_s
        self._most_hanging = most_hanging
        self._lock = threading.RLock()
        self._idle: List[_IdleThread] = []
        self._hanging: Dict[FolderLook, float] = {}  # looks that were given up, and when they began
        self._late: Dict[
            Tuple[str, str], Tuple[float, LookResult]
        ] = {}  # what abandoned looks have found after all, and when

    def hanging(self) -> List[str]:
        """Return the folders that are set aside now."""
        with self._lock:
            return sorted({look.folder for look in self._hanging})

    def look(self, folder: str, name: str, work: Callable[[], Any]) -> Any:
        """Do some work in one folder, and return its result. Raises: FolderHangs, OSError."""
        return self.look_at_all([FolderLook(folder, name, work)])[0].get()

    def look_at_all(self, looks: Sequence[FolderLook]) -> List[LookResult]:
        """Look at the folders in their order. An exception that is not an OSError is raised at the end."""
        row = _Row(looks, self._lock)
        first = row.go_on(self._known)
        while first is not None and self._begin(row, first):
            first = self._await(row)
        return row.seen()

    def begin(self, look: FolderLook, ended: Callable[[], None]) -> Callable[[], LookResult]:
        """Make a look without waiting for it. `ended` is called once, by any thread, when it is over.

        Return what returns the result. Called earlier, such as after the limit, that gives the look up.
        """
        row = _Row([look], self._lock, ended)
        first = row.go_on(self._known)
        if first is not None:
            self._begin(row, first)

        def result() -> LookResult:
            with self._lock:
                stuck = row.await_end(0.0)
                if stuck is not None:
                    self._give_up(row, stuck)
            return row.seen()[0]

        return result

    def _begin(self, row: _Row, first: int) -> bool:
        """Have a thread make the looks from this one on. Return False if none can be started."""
        with self._lock:
            if self._idle:
                self._idle.pop().give((row, first))
                return True
        try:
            threading.Thread(target=self._work, args=(row, first), name="folder look", daemon=True).start()
        except RuntimeError:  # this process may have no more threads
            row.refuse(OSError(errno.EAGAIN, "no thread can be started to look at it", row.looks[first].folder))
            return False
        return True

    def _work(self, row: _Row, first: int) -> None:
        """Make the looks of this row, and then those of others, until there have been none for a while."""
        given: Optional[Tuple[_Row, int]] = (row, first)
        while given is not None:
            self._make(*given)
            idle = _IdleThread(self._lock)
            with self._lock:
                self._idle.append(idle)
                given = idle.await_work(_IDLE_S)
                if given is None:
                    self._idle.remove(idle)

    def _await(self, row: _Row) -> Optional[int]:
        """Wait for the thread at work; return the look where another one is to continue, None at the end."""
        while True:
            stuck = row.await_end(self.limit_s)
            if stuck is None:
                return None
            with self._lock:
                if self._give_up(row, stuck):
                    return row.go_on(self._known)

    def _give_up(self, row: _Row, stuck: int) -> bool:
        """Set the folder aside. Return False if the look has ended after all."""
        look = row.looks[stuck]
        if not row.accept(stuck, LookResult(error=_slow(look.folder, self.limit_s))):
            return False
        self._hanging[look] = time.monotonic() - self.limit_s
        return True

    def _make(self, row: _Row, first: int) -> None:
        """Make the looks from this one on, until one of them has been abandoned."""
        place: Optional[int] = first
        while place is not None:
            look = row.looks[place]
            seen = row.make(look)
            with self._lock:
                if row.accept(place, seen):
                    place = row.go_on(self._known)
                    continue
                self._hanging.pop(look, None)
                if look.name:
                    self._late[look.folder, look.name] = (time.monotonic(), seen)
            return

    def _known(self, look: FolderLook) -> Optional[LookResult]:
        """Return what is known of a look without making it; None if it is to be made."""
        now = time.monotonic()
        self._late = {key: late for key, late in self._late.items() if now - late[0] < _LATE_FOR_S}
        late = self._late.pop((look.folder, look.name), None)
        if late is not None:
            return late[1]
        for other, since in self._hanging.items():
            if other.folder == look.folder:
                return LookResult(error=_slow(look.folder, now - since))
        if len(self._hanging) >= self._most_hanging:
            text = "{} other folders of trials hang, and no more is tried".format(len(self._hanging))
            return LookResult(error=FolderHangs(errno.ETIMEDOUT, text, look.folder))
        return None


class _IdleThread:
    """A thread that waits for looks to make. The lock is that of all looks, and is held by each caller."""

    def __init__(self, lock: threading.RLock) -> None:
        self._changed = threading.Condition(lock)
        self._given: Optional[Tuple[_Row, int]] = None

    def give(self, work: Tuple[_Row, int]) -> None:
        self._given = work
        self._changed.notify()

    def await_work(self, limit_s: float) -> Optional[Tuple[_Row, int]]:
        """Return the row to work on, and its look to begin with; None if there is none within the limit."""
        self._changed.wait_for(lambda: self._given is not None, limit_s)
        return self._given


class _Row:
    """Looks that are made one after the other, and how far that is."""

    def __init__(
        self, looks: Sequence[FolderLook], lock: threading.RLock, ended: Optional[Callable[[], None]] = None
    ) -> None:
        self.looks = looks
        self._ended = ended
        self._seen: List[Optional[LookResult]] = [None] * len(looks)
        self._changed = threading.Condition(lock)
        self._next = 0
        self._at: Optional[int] = None  # the one that is being made
        self._since = 0.0
        self._problem: Optional[BaseException] = None

    def make(self, look: FolderLook) -> LookResult:
        """Make a look, which may block without end."""
        try:
            return LookResult(look.work())
        except OSError as error:
            return LookResult(error=error)
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            self._problem = error
            return LookResult()

    def go_on(self, known: Callable[[FolderLook], Optional[LookResult]]) -> Optional[int]:
        """Return the next look that is to be made; None if there is none."""
        with self._changed:
            self._at = None
            while self._next < len(self.looks) and self._at is None:
                place, self._next = self._next, self._next + 1
                self._seen[place] = known(self.looks[place])
                if self._seen[place] is None:
                    self._at, self._since = place, time.monotonic()
            self._changed.notify_all()
            self._tell_end()
            return self._at

    def accept(self, place: int, seen: LookResult) -> bool:
        """Take what a look has found. Return False if that is there already: it was abandoned, or has ended."""
        with self._changed:
            if self._seen[place] is not None:
                return False
            self._seen[place] = seen
            return True

    def refuse(self, error: OSError) -> None:
        """Have no further look made."""
        with self._changed:
            self._seen = [one or LookResult(error=error) for one in self._seen]
            self._at, self._next = None, len(self.looks)
            self._tell_end()

    def _tell_end(self) -> None:
        if self._at is None and self._ended is not None:
            ended, self._ended = self._ended, None
            ended()

    def await_end(self, limit_s: float) -> Optional[int]:
        """Wait until all are made, and return None; or until one is too slow, and return which."""
        with self._changed:
            while self._at is not None:
                left_s = self._since + limit_s - time.monotonic()
                if left_s <= 0:
                    return self._at
                self._changed.wait(left_s)
        return None

    def seen(self) -> List[LookResult]:
        """Return what was found, in the order of the looks."""
        if self._problem is not None:
            raise self._problem
        return [one or LookResult() for one in self._seen]


def _slow(folder: str, for_s: float) -> FolderHangs:
    return FolderHangs(errno.ETIMEDOUT, "no answer within {:.0f} s".format(max(1.0, for_s)), folder)
