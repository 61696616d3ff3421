"""Shows a manager's log on this program's standard error, as it grows."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from nnilite._logging.terminal_text import escape_control

_POLL_S = 0.1


class LogView(threading.Thread):
    """Shows what is added to a log, until `end` is called."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="manager log", daemon=True)
        self._path = path
        self._over = threading.Event()

    def run(self) -> None:
        with self._path.open(encoding="utf-8", errors="replace") as file:
            while True:
                over = self._over.wait(_POLL_S)
                # The log may have been cut: then what comes after that is shown.
                if os.fstat(file.fileno()).st_size < file.tell():
                    file.seek(0, os.SEEK_END)
                text = file.read()
                sys.stderr.write(escape_control(text) if sys.stderr.isatty() else text)
                if over:
                    return

    def end(self) -> None:
        self._over.set()
        self.join(timeout=5.0)
