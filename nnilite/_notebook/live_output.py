"""Shows progress in a Jupyter notebook: one output, which is renewed in its place while the cell runs."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

EVERY_S = 0.5
"""So seldom the output is renewed, however fast the trials end."""


def is_here() -> bool:
    """Return whether this program is the kernel of a notebook, which shows HTML."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and hasattr(shell, "kernel")


def write_line(sentence: str) -> None:
    """Write to standard error, or to standard output in a notebook, where the former looks like a fault.

    A program may run without them, as a daemon does, and may outlive who reads them: its search continues.
    """
    stream = sys.stdout if is_here() else sys.stderr
    if stream is not None:
        with suppress(OSError):
            stream.write(f"{sentence}\n")
            stream.flush()


class LiveOutput:
    """One output of the running cell. `html` gives what it shows now."""

    def __init__(self, html: Callable[[], str]) -> None:
        self._html = html
        self._handle: Any = None
        self._shown_at = 0.0

    def show(self, *, last: bool = False) -> None:
        """Show the present state, unless it has just been shown; `last`: in any case."""
        now = time.monotonic()
        if self._handle is not None and not last and now < self._shown_at + EVERY_S:
            return
        ipython: Any = importlib.import_module("IPython.display")  # its functions have no types
        self._shown_at = now
        found = ipython.HTML(self._html())
        if self._handle is None:
            self._handle = ipython.display(found, display_id=True)
        else:
            self._handle.update(found)
