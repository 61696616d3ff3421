"""Time limits of calls that block, kept by one thread."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from nnilite.platform_http import limited_by
from nnilite.platform_http._deadlines import _Deadline, _Deadlines


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


class EndsAtTheLastMoment(_Deadline):
    """Has ended by itself when it is looked at the third time, which is when it is taken."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "end":
            self.looks += 1
            if self.looks > 2:
                return None
        return super().__getattribute__(name)

    def __lt__(self, other: object) -> bool:
        return True

    def __gt__(self, other: object) -> bool:
        return False


def test_one_that_ends_as_its_time_comes_leaves_the_others_their_limits() -> None:
    limits, ended = _Deadlines(), threading.Event()
    limits._limits.append(EndsAtTheLastMoment(time.monotonic(), -1, lambda: None))
    limits.add(0.05, ended.set)
    assert ended.wait(10)
