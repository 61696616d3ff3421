"""What the side processes of a manager share: their config and log, their lock, and their end."""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import threading
from pathlib import Path

from nnilite._experiments.locking import describe_holder
from nnilite._logging.secret_filter import SecretFilter
from nnilite._logging.terminal_text import LogFormatter
from nnilite.config import CheckedConfig, load_stored

log = logging.getLogger("nnilite.tracker")

_EVERY_S = 1.0
_LAST_S = 60


def prepared(directory: Path) -> CheckedConfig:
    """Return the config of the experiment in `directory`. Its secrets are hidden in the log from now on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the manager, which ends this process in good order
    limit_last_try()
    config = load_stored(directory, paths=False)
    handler = logging.StreamHandler()
    handler.addFilter(SecretFilter([*config.secrets]))
    handler.setFormatter(LogFormatter("[%(asctime)s] %(levelname)s (%(name)s) %(message)s", "%Y-%m-%d %H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    return config


def limit_last_try() -> None:
    """Let the system end this process a minute after its manager, whatever it waits for then.

    A manager that lives ends it sooner; one that was killed cannot, and the process of the next one waits for its lock.
    """

    def wait() -> None:
        manager = select.poll()
        manager.register(0, 0)  # only the end of the input is reported, which is always so
        manager.poll()
        signal.alarm(_LAST_S)

    threading.Thread(target=wait, name="manager's end", daemon=True).start()


def is_alone(path: Path) -> bool:
    """Wait for the lock, which this process then has until its end: that of a killed manager may still send.

    Return whether it was obtained before the manager ended.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    lock = os.open(path, flags, 0o600)
    known = ""
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = describe_holder(lock)
            if holder != known:
                log.info("waiting for the end of %s, which an earlier manager has left", holder)
                known = holder
        else:
            return True
        if is_over():
            return False


def is_over() -> bool:
    """Wait a moment. Return whether the manager has closed this process's standard input meanwhile."""
    readable, _, _ = select.select([0], [], [], _EVERY_S)
    return bool(readable) and not os.read(0, 4096)
