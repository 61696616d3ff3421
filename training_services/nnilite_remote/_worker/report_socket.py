"""Passes reports of keepers on, by the agent's own connection: a Unix socket next to the file with its address.

A keeper that finds the socket uses it: see `nnilite._keeper.local_link`. A request through the tunnel costs both ends
more than all other work for a short trial. Each line goes to the manager, and its answer comes back, unchanged:

    agent      {"event": "report", "caller": 1, "line": "..."}
    manager    {"do": "answer", "caller": 1, "line": "..."}        line "": use the tunnel

Only this user can make or open the socket. If anything about it fails, the keeper sends the same through the tunnel.

One thread serves all callers. A line longer than `_HEAD_BYTES` is read further only when its beginning has proven the
sender: a program that can open the socket is usually a trial, and a trial may send anything.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import selectors
import socket
import threading
import time
from typing import Any, Callable

_ANSWER_S = 30.0
_PROOF_S = 60.0  # from a connection to its first line
_LINE_S = 30.0  # for a whole line
_HEAD_BYTES = 4096
_READ_BYTES = 65536
_MOST_BYTES = 262144  # a larger batch would hold up what else the agent says; it goes through the tunnel
_MOST_CALLERS = 256
_MOST_UNPROVEN = 64
_MOST_LONG = 2  # long lines of one job at a time
_BACKLOG = 256
_AGAIN_S = 0.2
_LOOK_S = 1.0
_HEAD = re.compile(rb'\s*\{\s*"job"\s*:\s*"([A-Za-z0-9._-]{1,200})"\s*,\s*"token"\s*:\s*"([ !#-[\]-~]{1,200})"\s*,')


class _ReportCaller:
    """One connection, and what the agent waits for on it."""

    def __init__(self, number: int, connection: socket.socket) -> None:
        self.number = number
        self.connection = connection
        self.data = b""
        self.job = ""  # whose long line it is sending, once that is proven
        self.waits = False  # whether it waits for the manager's answer
        self.proven = False  # it has had an answer of the manager
        self.until_s = time.monotonic() + _PROOF_S


class ReportSocket:
    """Serves keepers. `say` sends a message to the manager; `knows` returns whether a token belongs to a job here."""

    def __init__(self, say: Callable[[dict[str, Any]], None], knows: Callable[[str, str], bool]) -> None:
        self._say = say
        self._knows = knows
        self._listening: socket.socket | None = None
        self._answers: collections.deque[tuple[int, str]] = collections.deque()
        self._wake: socket.socket | None = None
        self._last = 0
        self._callers: dict[int, _ReportCaller] = {}  # the oldest first
        self._watch: selectors.BaseSelector | None = None

    def listen(self, path: str) -> None:
        """Begin to serve, and replace the socket of an earlier agent. Without it, keepers use the tunnel."""
        if self._listening is not None:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(path)
            os.chmod(path, 0o600)
            listening.listen(_BACKLOG)
            listening.setblocking(False)
            news, self._wake = socket.socketpair()
        except OSError:  # too long a name, a full disk
            listening.close()
            return
        news.setblocking(False)
        self._wake.setblocking(False)
        self._listening = listening
        threading.Thread(target=self._run, args=(listening, news, self._wake), daemon=True).start()

    def close(self) -> None:
        """Serve no further keeper."""
        self._listening = None
        self._ring()

    def answer(self, caller: int, line: str) -> None:
        """Pass the manager's answer on to the keeper that waits for it."""
        self._answers.append((caller, line))
        self._ring()

    def _ring(self) -> None:
        if self._wake is not None:
            with contextlib.suppress(OSError):  # it has been rung already, or all is over
                self._wake.send(b"!")

    # -- what follows is done by the socket's own thread

    def _run(self, listening: socket.socket, news: socket.socket, wake: socket.socket) -> None:
        with listening, news, wake, selectors.DefaultSelector() as watch:
            self._watch = watch
            watch.register(listening, selectors.EVENT_READ, lambda: self._accept(listening))
            watch.register(news, selectors.EVENT_READ, lambda: self._hand_over(news))
            while self._listening is listening:
                for key, _ in watch.select(_LOOK_S):
                    key.data()
                self._drop_late()
            for caller in list(self._callers.values()):
                self._drop(caller)

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except BlockingIOError:
            return
        except OSError:  # no file descriptors are left
            time.sleep(_AGAIN_S)
            return
        unproven = [caller for caller in self._callers.values() if not caller.proven]
        if len(unproven) >= _MOST_UNPROVEN:
            self._drop(unproven[0])
        elif len(self._callers) >= _MOST_CALLERS:
            connection.close()
            return
        connection.setblocking(False)
        self._last += 1
        caller = self._callers[self._last] = _ReportCaller(self._last, connection)
        self._listen_to(caller)

    def _listen_to(self, caller: _ReportCaller) -> None:
        if self._watch is not None:
            self._watch.register(caller.connection, selectors.EVENT_READ, lambda: self._read(caller))

    def _read(self, caller: _ReportCaller) -> None:
        if caller.number not in self._callers:  # it was dropped since the look
            return
        try:
            piece = caller.connection.recv(_READ_BYTES if caller.job else _HEAD_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not caller.data and caller.proven:
            caller.until_s = time.monotonic() + _LINE_S
        caller.data += piece
        if not piece or len(caller.data) > _MOST_BYTES or not self._may_go_on(caller):
            self._drop(caller)
        elif caller.data.endswith(b"\n"):
            self._pass_on(caller)

    def _may_go_on(self, caller: _ReportCaller) -> bool:
        """Return whether a line is short, or its beginning has proven the sender."""
        if caller.job or len(caller.data) < _HEAD_BYTES:
            return True
        found = _HEAD.match(caller.data)
        if found is None:
            return False
        job, token = found.group(1).decode("ascii"), found.group(2).decode("ascii")
        if sum(each.job == job for each in self._callers.values()) >= _MOST_LONG or not self._knows(job, token):
            return False
        caller.job, caller.until_s = job, time.monotonic() + _LINE_S
        return True

    def _pass_on(self, caller: _ReportCaller) -> None:
        try:
            line = caller.data.decode("ascii").rstrip("\n")
        except ValueError:
            self._drop(caller)
            return
        caller.data, caller.waits, caller.until_s = b"", True, time.monotonic() + _ANSWER_S
        if self._watch is not None:  # it sends nothing before it has its answer
            self._watch.unregister(caller.connection)
        self._say({"event": "report", "caller": caller.number, "line": line})

    def _hand_over(self, news: socket.socket) -> None:
        """Send the answers that have come to the callers that wait for them."""
        with contextlib.suppress(OSError):
            news.recv(_HEAD_BYTES)
        while self._answers:
            number, line = self._answers.popleft()
            caller = self._callers.get(number)
            if caller is None or not caller.waits:
                continue
            data = line.encode("ascii", "replace") + b"\n"
            try:
                sent = caller.connection.send(data) if line else 0
            except OSError:
                sent = 0
            if sent < len(data):  # the tunnel is to be used, or the keeper takes nothing
                self._drop(caller)
                continue
            caller.job, caller.waits, caller.proven = "", False, True
            self._listen_to(caller)

    def _drop_late(self) -> None:
        now = time.monotonic()
        for caller in list(self._callers.values()):
            if (caller.waits or caller.data or not caller.proven) and now > caller.until_s:
                self._drop(caller)

    def _drop(self, caller: _ReportCaller) -> None:
        self._callers.pop(caller.number, None)
        if not caller.waits and self._watch is not None:
            self._watch.unregister(caller.connection)
        caller.connection.close()
