"""Reports of keepers, by the agent's own connection: a Unix socket beside the file with the manager's address.

A keeper that finds one there uses it: see `nnilite._keeper.local_link`. A request through the tunnel costs both ends
more than all else that is done for a short trial. Each line goes to the manager and its answer comes back as it is:

    agent      {"event": "report", "caller": 1, "line": "..."}
    manager    {"do": "answer", "caller": 1, "line": "..."}        line "": use the tunnel

Only this user can make or open the socket. If anything about it fails, the keeper sends the same through the tunnel.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from typing import Any, Callable

_ANSWER_S = 30.0
_MOST_BYTES = 262144  # a larger batch would hold up what else the agent says; it goes through the tunnel
_MOST_CALLERS = 256
_BACKLOG = 256
_AGAIN_S = 0.2


class ReportSocket:
    """Serves each keeper in a thread."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say
        self._listening: socket.socket | None = None
        self._answers: dict[int, queue.SimpleQueue[str]] = {}  # by caller
        self._last = 0

    def listen(self, path: str) -> None:
        """Begin to serve. What an earlier agent has left there is taken away. Without it keepers use the tunnel."""
        if self._listening is not None:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(path)
            os.chmod(path, 0o600)
            listening.listen(_BACKLOG)
        except OSError:  # too long a name, a full disk
            listening.close()
            return
        self._listening = listening
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()

    def close(self) -> None:
        """Serve no further keeper."""
        listening, self._listening = self._listening, None
        if listening is not None:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    def answer(self, caller: int, line: str) -> None:
        """Hand the manager's answer to the keeper that waits for it."""
        waiting = self._answers.get(caller)
        if waiting is not None:
            waiting.put(line)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # no file descriptors are left, or it was closed
                if self._listening is not listening:
                    return
                time.sleep(_AGAIN_S)
                continue
            if len(self._answers) >= _MOST_CALLERS:
                connection.close()
                continue
            self._last += 1
            self._answers[self._last] = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(self._last, connection), daemon=True).start()

    def _serve(self, caller: int, connection: socket.socket) -> None:
        answers = self._answers[caller]
        try:
            with connection, connection.makefile("rb") as stream:
                while True:
                    line = stream.readline(_MOST_BYTES)
                    if not line.endswith(b"\n"):
                        return
                    self._say({"event": "report", "caller": caller, "line": line.decode("ascii").rstrip("\n")})
                    answer = answers.get(timeout=_ANSWER_S)
                    if not answer:
                        return
                    connection.sendall(answer.encode("ascii") + b"\n")
        except (OSError, ValueError, queue.Empty):  # the keeper has gone, or the manager does not answer
            return
        finally:
            del self._answers[caller]
