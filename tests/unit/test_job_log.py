"""The log of a job that a hostile trial writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from nnilite.records import Output
from nnilite.services import job_log
from nnilite.services.job_log import JobLog

EXIT = b'NNILITE_EVENT {"type": "exit", "time": 9.0, "code": 3, "message": "it failed"}'


class Log(JobLog):
    """A log whose pieces come one at a time."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__()
        self.pieces = list(pieces)

    async def read_on(self) -> None:
        for piece in self.pieces:
            self.add(piece)


def read_output(log: Log) -> bytes:
    return b"".join(event.data for event in log.events(True) if isinstance(event, Output))


async def test_a_line_without_an_end_is_cut_and_the_next_ones_are_whole() -> None:
    log = Log(*[b"9" * 1_000_000] * 30)
    await log.follow()
    assert sum(map(len, log._unread.values())) == job_log._LONGEST_LINE_BYTES
    log.pieces = [b"9\nthe next\n" + EXIT + b"\n"]
    await log.follow()
    assert read_output(log) == b"9" * job_log._LONGEST_LINE_BYTES + b"\nthe next\n"
    assert log.exited is not None


async def test_events_without_end_are_parsed_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noting(text: bytes) -> Sequence[object]:
        threads.append(threading.current_thread())
        return ()

    monkeypatch.setattr(job_log, "read_log", noting)
    await Log((EXIT + b"\n") * 10_000).follow()
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_the_end_is_known_as_soon_as_its_line_has_come() -> None:
    log = Log()
    log.add(EXIT + b"\n")
    assert log.exited is not None
    assert log.exited.code == 3


async def test_what_a_thread_parses_comes_whole_to_who_asks_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[object]] = []

    def read(text: bytes) -> Iterator[object]:
        for line in text.split(b"\n"):
            yield line
            asked.append(log.events(True))

    monkeypatch.setattr(job_log, "read_log", read)
    log = Log(b"\n".join([EXIT] * 3) + b"\n")
    await log.follow()
    assert len(log.events(True)) == 3
    assert asked == [[], [], []]
