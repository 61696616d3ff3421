"""Requests whose sender no longer waits for the answer, as after the manager was stopped or its machine was asleep.

Such a change was answered with an error: the sender may have made it again, or in another way. The time is that of the
clock which all programs of one boot of a machine share, and which never jumps.
"""

from __future__ import annotations

import time

from nnilite._keeper.process import boot_id

HEADER = "X-Nnilite-Until"


def spell_until(timeout_s: float) -> str:
    """Return the header of a request whose sender waits for `timeout_s` from now."""
    return f"{boot_id()} {time.monotonic() + timeout_s:.3f}"


def is_late(until: str) -> bool:
    """Return whether the time in a header is over. It says nothing to another machine.

    >>> is_late(spell_until(-1)), is_late(spell_until(60)), is_late("")
    (True, False, False)
    """
    boot, _, moment = until.partition(" ")
    try:
        return bool(boot) and boot == boot_id() and time.monotonic() > float(moment)
    except ValueError:
        return False
