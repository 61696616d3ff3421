"""A process that has imported what a program needs, and forks the program for each request.

`manager_template.py` and `worker_template.py` run one. `harness/ready_programs.py` sends the requests. After the end of
the socket this process lasts as long as the programs: a thread of the tests may wait for the end of each.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

Begin = Callable[[list[int], list[str]], NoReturn]
"""Becomes the program, with these files and these words of its command line."""

_MOST_BYTES = 1 << 20
"""The longest request, an environment most of all."""
_MOST_FILES = 4


class Template:
    """Forks programs, and says how each has ended."""

    def __init__(self, channel: socket.socket, begin: Begin) -> None:
        self._channel = channel
        self._begin = begin
        # Not by epoll, whose set a forked process would share.
        self._endings = selectors.PollSelector()
        self._endings.register(channel, selectors.EVENT_READ)

    def serve(self) -> None:
        """Obey requests until nobody is left to send any, and all programs have ended."""
        gc.freeze()
        while self._endings.get_map():
            for key, _ in self._endings.select():
                if key.data is not None:
                    self._tell_end(key.fd, *key.data)
                elif not self._obey():
                    self._endings.unregister(self._channel)

    def _obey(self) -> bool:
        text, files, _, _ = socket.recv_fds(self._channel, _MOST_BYTES, _MOST_FILES)
        if not text:
            return False
        *given, status = files
        process = os.fork()
        if not process:
            request = json.loads(text)
            _enter(request)
            self._begin(given, request["words"])
        os.write(status, f"{process}\n".encode())
        for one in given:
            os.close(one)
        self._endings.register(os.pidfd_open(process), selectors.EVENT_READ, (process, status))
        return True

    def _tell_end(self, pidfd: int, process: int, status: int) -> None:
        self._endings.unregister(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        try:
            os.write(status, f"{code}\n".encode())
        except BrokenPipeError:
            # A test that has ended does not ask any more.
            pass
        os.close(status)


def _enter(surroundings: dict[str, Any]) -> None:
    """Take over the surroundings of the process that asks."""
    os.umask(surroundings["umask"])
    os.chdir(surroundings["folder"])
    sys.path[0] = surroundings["folder"]
    os.environ.clear()
    os.environ.update(surroundings["environment"])
