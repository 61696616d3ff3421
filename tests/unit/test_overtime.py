"""Time limits of calls that block, kept by one thread."""

from __future__ import annotations

import contextlib
import threading
import time

from nnilite.platform_http import limited_by


def test_what_takes_too_long_is_ended_while_longer_limits_wait() -> None:
    ended = threading.Event()
    with limited_by(60, lambda: None), limited_by(0.05, ended.set):
        assert ended.wait(30)


def test_what_has_ended_in_time_is_left_alone() -> None:
    wrong: list[str] = []
    with limited_by(0.5, lambda: wrong.append("it has ended")):
        pass
    passed = threading.Event()
    with limited_by(0.7, passed.set):
        assert passed.wait(30)
    assert wrong == []


def test_a_thousand_limits_need_one_thread() -> None:
    before = set(threading.enumerate())
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(limited_by(60 + time.monotonic() % 1, lambda: None))
        assert len(set(threading.enumerate()) - before) <= 1
