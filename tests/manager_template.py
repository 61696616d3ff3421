"""A process that has imported what a manager needs, and forks one for each request: `python manager_template.py FD`.

Tests start hundreds of managers, and what a manager imports takes most of the processor time of its start.
`harness/ready_managers.py` sends the requests to the socket FD. The end of that socket is the end of this process.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import socket
import sys
from typing import Any

import nnilite_local  # noqa: F401 - the platform of most tests
from nnilite._manager.__main__ import begin
from nnilite._running.forked_process import go_on_as

MOST_BYTES = 1 << 20
"""The longest request, an environment most of all."""


class Template:
    """Forks managers, and says how each has ended."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        # Not by epoll, whose set a forked process would share.
        self._endings = selectors.PollSelector()
        self._endings.register(channel, selectors.EVENT_READ)

    def serve(self) -> None:
        """Obey requests until nobody is left to send any."""
        while True:
            for key, _ in self._endings.select():
                if key.data is not None:
                    self._tell_end(key.fd, *key.data)
                elif not self._obey():
                    return

    def _obey(self) -> bool:
        text, files, _, _ = socket.recv_fds(self._channel, MOST_BYTES, 4)
        if not text:
            return False
        heard, early_words, ready, status = files
        process = os.fork()
        if not process:
            _enter(json.loads(text))
            go_on_as(lambda: begin(["--stand-by", str(ready)]), heard, early_words, ready)
        os.write(status, f"{process}\n".encode())
        for one in (heard, early_words, ready):
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


if __name__ == "__main__":
    gc.freeze()
    Template(socket.socket(fileno=int(sys.argv[1]))).serve()
