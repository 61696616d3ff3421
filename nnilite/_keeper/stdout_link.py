"""The way to the manager through the log of a platform: marked lines on standard output."""

from __future__ import annotations

# All modules are imported before the trial starts: later there may be no file descriptor left to open one.
import base64
import json
import sys

from .link import MARK
from .outbox import ManagerAnswer
from .recap import EVERY_BYTES, Recap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_PIECE_BYTES = 8192


class StdoutLink:
    """Prints events as lines `NNILITE_EVENT {json}`, for services that read the platform's log.

    The trial's output is passed through in whole lines. There are no answers, so everything counts as taken, and is
    repeated by a recap: see `recap`.
    """

    def __init__(self) -> None:
        self._unfinished = {"stdout": b"", "stderr": b""}
        self._recap = Recap()
        self._since_recap_bytes = 0

    def post(self, events: List[Dict[str, Any]]) -> ManagerAnswer:
        """Print."""
        text = b"".join(map(self._convert, events))
        self._since_recap_bytes += len(text)
        if self._since_recap_bytes > EVERY_BYTES:
            text += self._repeat()
        try:
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
        except OSError:  # the reader has gone; the files remain
            return ManagerAnswer(200)
        return ManagerAnswer(200)

    def _convert(self, event: Dict[str, Any]) -> bytes:
        """Return what is printed for an event."""
        if event["type"] == "output" and event["stream"] in self._unfinished:
            return self._lines(event["stream"], base64.b64decode(event["data"]))
        if event["type"] == "output":  # from another rank: in short lines, since some platforms split long ones
            return b"".join(_mark(json.dumps(piece)) for piece in _split(event))
        text = json.dumps(event)
        if event["type"] != "exit":
            self._recap.record(event["type"], text)
            return _mark(text)
        return self._lines("stdout", b"", True) + self._lines("stderr", b"", True) + self._repeat() + _mark(text)

    def _repeat(self) -> bytes:
        """Return the lines of a recap of all that was printed so far."""
        self._since_recap_bytes = 0
        return b"".join(_mark(json.dumps(line)) for line in self._recap.events())

    def _lines(self, stream: str, data: bytes, end: bool = False) -> bytes:
        """Return the lines that this piece of output completes, changed so that none looks like an event."""
        data = self._unfinished[stream] + data
        whole, newline, rest = data.rpartition(b"\n")
        if end and rest:
            whole, newline, rest = data, b"\n", b""
        self._unfinished[stream] = rest
        mark = MARK.encode("ascii")
        return b"".join(line.replace(mark, mark[:-1] + b": ") + b"\n" for line in (whole + newline).split(b"\n")[:-1])

    def prepare(self) -> None:
        """Do nothing, as there is nothing to connect."""

    def close(self) -> None:
        """Do nothing, as nothing is open."""


def _split(event: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return an event of output as several with less output each."""
    data = base64.b64decode(event["data"])
    return [
        dict(
            event,
            offset=event["offset"] + begin,
            data=base64.b64encode(data[begin : begin + _PIECE_BYTES]).decode("ascii"),
        )
        for begin in range(0, len(data), _PIECE_BYTES)
    ]


def _mark(event: str) -> bytes:
    """Return the line of an event that is given in JSON."""
    return (MARK + event + "\n").encode("ascii")
