"""What a forked process has of a search at which another thread of its parent was at work: an error, and no hang.

That thread is not in the forked process, so it never releases the lock there, and what it has changed is half done.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, NoReturn

from nnilite.errors import Conflict

if TYPE_CHECKING:
    from nnilite.search import Search

_ALL: weakref.WeakSet[Search] = weakref.WeakSet()


class LostLock:
    """The lock of such a search."""

    def __enter__(self) -> NoReturn:
        raise Conflict(
            "this process was forked while another thread was at work in this search, and cannot use it. Make a Search "
            "here, with the same `storage` if it is to share the trials, or start the process by 'spawn'."
        )

    def __exit__(self, *_: object) -> None:
        """Do nothing: it is never held."""


def watch_forks(search: Search) -> None:
    """Give this search a lost lock in each process that is forked while another thread holds its lock."""
    _ALL.add(search)


def _leave_after_fork() -> None:
    for search in _ALL:
        lock = search._lock
        if isinstance(lock, LostLock):
            continue
        if lock.acquire(blocking=False):
            lock.release()
        else:
            search._lock = LostLock()


os.register_at_fork(after_in_child=_leave_after_fork)
