"""What a check of the doctor has found."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import Enum

PLATFORM_CURE = "correct the platform's section in the config; its page in docs/how-to lists what it needs"
ROOM_CURE = "free some space, or set experimentWorkingDirectory to another disk"


def cure_disk(error: OSError) -> str:
    """Return what to do where the folder of experiments cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ROOM_CURE
    return "set experimentWorkingDirectory or NNILITE_HOME to a folder in which you may write"


class Level(str, Enum):
    """How bad a finding is."""

    OK = "OK"
    WARNING = "WARNING"  # experiments run, but not as they could
    FAULT = "FAULT"  # experiments do not run, or not safely


@dataclass(frozen=True)
class Finding:
    """One line about one thing. `cure` is what to do about it, "" if nothing has to be done."""

    check: str  # what was examined, such as `disk`
    level: Level
    what: str
    cure: str = ""


def ok(check: str, what: str) -> Finding:
    return Finding(check, Level.OK, what)


def warning(check: str, what: str, cure: str) -> Finding:
    return Finding(check, Level.WARNING, what, cure)


def fault(check: str, what: str, cure: str) -> Finding:
    return Finding(check, Level.FAULT, what, cure)


_CURES = (
    ("does not let me in", "check that `ssh USER@HOST` works with the same user, password or key"),
    ("host key", "compare the key with the host's own, then add it with `ssh-keyscan HOST >> ~/.ssh/known_hosts`"),
    ("refused", "check that the address and port are right, and that the program there runs"),
    ("timed out", "check that the address is right, and that no firewall is in between"),
    ("could not be resolved", "check that the name is spelled correctly, and that this machine's DNS knows it"),
)
"""What to do about errors whose sentence does not tell, by words in it."""


def divided(check: str, message: str, cure: str) -> Finding:
    """Split an error's sentence into a fault and its cure. The cure follows a semicolon; without one it is `cure`."""
    what, mark, own = message.rpartition("; ")
    if mark:
        return fault(check, what, own)
    return fault(check, message, next((known for words, known in _CURES if words in message), cure))
