"""Time limits of calls that block, kept by one thread."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial

from nnilite.platform_http import limited_by


def test_what_takes_too_long_is_ended_while_longer_limits_wait() -> None:
    ended = threading.Event()
    with limited_by(60, lambda: None), limited_by(0.05, ended.set):
        assert ended.wait(30)


def test_what_has_ended_in_time_is_left_alone() -> None:
    wrong: list[str] = []
    with limited_by(0.05, lambda: wrong.append("it has ended")):
        pass
    passed = threading.Event()
    with limited_by(0.2, passed.set):
        assert passed.wait(30)
    assert wrong == []


def test_limits_are_kept_in_the_order_in_which_they_pass() -> None:
    order: list[int] = []
    last = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.enter_context(limited_by(0.3, last.set))
        for number in (3, 1, 2):
            stack.enter_context(limited_by(number * 0.05, partial(order.append, number)))
        assert last.wait(30)
    assert order == [1, 2, 3]


def test_a_thousand_limits_need_one_thread() -> None:
    before = set(threading.enumerate())
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(limited_by(60 + time.monotonic() % 1, lambda: None))
        assert len(set(threading.enumerate()) - before) <= 1
