"""What a search says when the program has ended around it: Python then refuses threads, and later all imports."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nnilite.errors import Conflict

_OVER = "shutdown"  # in all sentences of Python about it


@contextmanager
def explain_program_end() -> Iterator[None]:
    """Say what to do about errors of Python at the end of the program. Raises: Conflict."""
    if sys.meta_path is None:  # as in `__del__` of what the program has left
        raise Conflict(
            "the search cannot go on, since Python is taking the program apart. Tell results before the program ends, "
            "not in `__del__`."
        )
    try:
        yield
    except RuntimeError as error:
        if threading.main_thread().is_alive() or _OVER not in str(error):  # a pool of a tuner may be shut down, too
            raise
        raise Conflict(
            f"the search cannot go on, since the program's main thread has ended ({error}). Call it before, and not by "
            "`atexit`; or let the main thread wait for the one that searches (thread.join())."
        ) from error
