"""Threads that run trials of a search.

Unlike those of `ThreadPoolExecutor`, they end with the program while a trial still runs: the program waits for a trial
where it wants to, and a second Ctrl-C ends it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class TrialThreads:
    """Up to `most` threads, which begin as they are needed. Leaving the context waits for none that is busy."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun = 0
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    def __enter__(self) -> TrialThreads:
        return self

    def __exit__(self, *_: object) -> None:
        for _number in range(self._begun):
            self._tasks.put(None)

    def submit(self, future: Future[Any], call: Callable[[], Any]) -> None:
        """Have one of the threads make a call, unless its future is cancelled first.

        The caller knows of the future before: Ctrl-C may come at any place in here.
        """
        self._tasks.put((future, call))
        if self._begun < self._most:
            self._begun += 1
            threading.Thread(target=self._work, name=f"nnilite-search_{self._begun}", daemon=True).start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, call = task
            try:
                if future.set_running_or_notify_cancel():
                    future.set_result(call())
            except BaseException as error:  # noqa: BLE001  such as SystemExit: it is raised where the result is read
                future.set_exception(error)
            del future, call, task  # a thread that waits keeps no result
