"""The short way to a manager on this machine: a Unix socket next to the file with its address.

    keeper    {"job": JOB, "token": TOKEN, "events": [...]}      one line of JSON for each batch
    manager   {"status": 200, ...}                               one line, the answer of the REST callback

The line begins with the job and the token, in this order: the manager reads no further than 4 kB before it has checked
them.

A request over HTTP costs both sides more time than all else that is done for the reports of a short trial. Only this
user can make or open the socket, so no proofs are needed. It is only a shortcut: if anything about it fails, the same
batch goes to the REST callback, and the manager drops what it has already.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from typing import Any, Dict, List, Optional, Tuple

from .link import RestLink, read_answer
from .outbox import ManagerAnswer
from .spec import Spec

SUFFIX = ".sock"
"""What the name of the socket has after that of the file with the address."""

_TIMEOUT_S = 30.0
_MAX_ANSWER_BYTES = 1_000_000
_LONGEST_NAME = 100  # bytes; the system accepts few more

_kept: Dict[str, socket.socket] = {}  # by path: the next attempt of this process reuses the connection


class LocalLink(RestLink):
    """The socket, and the REST callback where that does not work."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._path = (spec.callback_file or "") + SUFFIX
        self._head = json.dumps({"job": spec.job, "token": spec.token}, separators=(",", ":"))[:-1]

    def post(self, events: List[Dict[str, Any]]) -> ManagerAnswer:
        """Deliver a batch. Raises: LinkDown."""
        content = '{},"events":{}}}\n'.format(self._head, json.dumps(events, separators=(",", ":")))
        found = self._ask(content.encode("ascii"))
        if found is None:
            return super().post(events)
        status, answer = found
        return read_answer(status, answer)

    def prepare(self) -> None:
        """Connect, so that the next request is faster. Raises: LinkDown."""
        if self._path not in _kept and self._connect_to_socket() is None:
            super().prepare()

    def _ask(self, content: bytes) -> Optional[Tuple[int, Dict[str, Any]]]:
        """Return the status and the answer; None if the socket is of no use now."""
        kept = self._path in _kept
        answer = self._exchange_by_socket(content)
        if answer is None and kept:  # the manager may have restarted since
            answer = self._exchange_by_socket(content)
        return answer

    def _exchange_by_socket(self, content: bytes) -> Optional[Tuple[int, Dict[str, Any]]]:
        connection = _kept.get(self._path) or self._connect_to_socket()
        if connection is None:
            return None
        try:
            connection.sendall(content)
            answer = json.loads(_line(connection).decode("utf-8"))
            if isinstance(answer, dict) and isinstance(answer.get("status"), int):
                return answer["status"], answer
        except (OSError, ValueError, RecursionError):
            pass  # the REST callback will say what is wrong
        del _kept[self._path]
        connection.close()
        return None

    def _connect_to_socket(self) -> Optional[socket.socket]:
        connection = None
        try:
            about = os.lstat(self._path)
            if not stat.S_ISSOCK(about.st_mode) or about.st_uid != os.geteuid():
                return None
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(_TIMEOUT_S)
            call_with_short_name(self._path, connection.connect)
        except OSError:  # there is none, or its manager has gone
            if connection is not None:
                connection.close()
            return None
        _kept[self._path] = connection
        return connection


def call_with_short_name(path: str, use: Any) -> None:
    """Call `use` with a name of the socket that is short enough for the system. Raises: OSError."""
    if len(os.fsencode(path)) <= _LONGEST_NAME:
        use(path)
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        use("/proc/self/fd/{}/{}".format(folder, os.path.basename(path)))
    finally:
        os.close(folder)


def _line(connection: socket.socket) -> bytes:
    """Return the next line. Raises: OSError, ValueError."""
    data = b""
    while not data.endswith(b"\n"):
        piece = connection.recv(65536)
        if not piece or len(data) > _MAX_ANSWER_BYTES:
            raise ValueError("the answer has no end")
        data += piece
    return data
