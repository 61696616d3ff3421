"""Opens the log of a process in an experiment's folder, which may come from another person."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def open_log(path: Path) -> int:
    """Return a log opened to append. What else is in its place, such as a link, is replaced. Raises: OSError."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            path.unlink()
    # A link that is put there now is not followed, and a pipe is not waited for.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(path, flags, 0o600)
