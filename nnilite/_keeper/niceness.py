"""Sets who gets a processor first where all of them are busy.

A trial has an equal share with all other programs of the machine, unless its user asks for less (`Niceness`). Manager
and fork server need little, but where the manager's own trials fill the machine, an equal share of it is too small for
them: the place of a trial that has ended stays empty for as long as they wait. So they come first (`raise_priority`),
where this user has that right.

On Linux, sessions (or the kernel's "autogroups" of them) share the processors first, and the niceness of a process
counts only within its session. Trial, manager and fork server are sessions of their own, so what counts is the niceness
of their autogroups. A new session starts with 0, so nothing of this is inherited by a trial.
"""

from __future__ import annotations

import os

from . import plain_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_LEAST = 19  # the lowest priority there is
# Nine times the share of others. Manager and fork server use only what little they need of it.
_FIRST = -10


def raise_priority(proc: str = "/proc") -> None:
    """Put the session that this process leads before all others, if there are autogroups and this user may do so."""
    # Otherwise this would raise whatever shares the session, such as the shell of a terminal.
    if os.getsid(0) == os.getpid():
        _write("{}/self/autogroup".format(proc), _FIRST)


class Niceness:
    """How far the process group with the pid `group`, a child of this process, is to step back."""

    def __init__(self, group: int, by: int, proc: str = "/proc") -> None:
        self._by = min(by, _LEAST)
        self._autogroup: Optional[str] = None  # the file to which this is still to be written
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
    """Write the niceness. Return False if it is to be tried again."""
    try:
        plain_file.write(autogroup, b"%d" % by, flags=0)
    except BlockingIOError:  # all users but root together may do this ten times a second
        return False
    except OSError:  # there are no autogroups here, the trial is that of another user, or only root may do this
        return True
    return True
