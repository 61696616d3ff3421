"""Lets a trial step back where all processors are busy, so that manager and keepers get one at once.

Trials that compute all the time share the processors with the processes that give them their work. These need little,
but wait as long as a trial for each bit of it, and the place of a trial that has ended stays empty meanwhile.

On Linux, sessions (or the kernel's "autogroups" of them) share the processors first, and the niceness of a process
counts only within its session. A trial is a session of its own, so that of its autogroup is set, too.
"""

from __future__ import annotations

import os

from . import plain_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_LEAST = 19  # further back than this there is nothing


class Niceness:
    """How far the process group with the pid `group`, of which this process is the parent, is to step back."""

    def __init__(self, group: int, by: int, proc: str = "/proc") -> None:
        self._by = min(by, _LEAST)
        self._autogroup: Optional[str] = None  # the file in which this is still to be said
        if self._by > 0:
            self._autogroup = "{}/{}/autogroup".format(proc, group)
            _renice(group, self._by)
            self.apply()

    def apply(self) -> None:
        """Try what is left to do."""
        if self._autogroup is not None and _write(self._autogroup, self._by):
            self._autogroup = None


def _renice(group: int, by: int) -> None:
    try:
        os.setpriority(os.PRIO_PGRP, group, min(os.getpriority(os.PRIO_PROCESS, 0) + by, _LEAST))
    except OSError:  # it has ended already
        return


def _write(autogroup: str, by: int) -> bool:
    """False if it is to be tried again."""
    try:
        plain_file.write(autogroup, b"%d" % by, flags=0)
    except BlockingIOError:  # all users but root together may do this ten times a second
        return False
    except OSError:  # there are no autogroups here, or the trial is that of another user
        return True
    return True
