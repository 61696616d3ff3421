"""The HTTP server of stand-ins: it ends when it is told to, and computes only for those who connect."""

from __future__ import annotations

import selectors
import threading
import urllib.request

import pytest

from nnilite.testing import eventually
from nnilite.testing.listener import Handler, Listener


class _Page(Handler):
    def do_GET(self) -> None:
        self.send(200, "text/plain", b"here")


def test_a_server_wakes_once_for_each_connection_and_once_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[tuple[float | None, ...]] = []
    others = set(threading.enumerate())  # what earlier tests have left, such as event loops, waits in the same way
    real = selectors.DefaultSelector.select

    def select(selector: selectors.DefaultSelector, *limit: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        if threading.current_thread() not in others:
            waits.append(limit)
        return real(selector, *limit)

    monkeypatch.setattr(selectors.DefaultSelector, "select", select)
    server = Listener(_Page, None)
    server.start()
    for _ in range(2):
        with urllib.request.urlopen(server.url, timeout=10) as answer:
            assert answer.read() == b"here"
    eventually(lambda: len(waits) == 3)
    server.stop()
    assert waits == [()] * 3


def test_a_server_that_was_stopped_listens_again_on_its_port() -> None:
    server = Listener(_Page, None)
    server.start()
    address = server.url
    server.stop()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=10)
    server.start()
    with urllib.request.urlopen(address, timeout=10) as answer:
        assert answer.read() == b"here"
    server.stop()
