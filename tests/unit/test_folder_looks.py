"""Looks at folders of which some hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nnilite._keeper.folder_looks import FolderHangs, FolderLook, FolderLooks
from nnilite.testing import eventually


@pytest.fixture
def answers() -> Iterator[threading.Event]:
    """Until this is set, what hangs hangs."""
    event = threading.Event()
    yield event
    event.set()


def hanging(answers: threading.Event, value: Any) -> Callable[[], Any]:
    def work() -> Any:
        answers.wait(30)
        return value

    return work


def test_what_does_not_hang_is_seen_in_its_order_and_errors_stay_with_their_look() -> None:
    def fail() -> None:
        raise PermissionError("no")

    seen = FolderLooks().look_at_all(
        [FolderLook("a", "", lambda: 1), FolderLook("b", "", fail), FolderLook("c", "", lambda: 3)]
    )
    assert (seen[0].get(), seen[2].get()) == (1, 3)
    with pytest.raises(PermissionError):
        seen[1].get()


def test_one_that_hangs_costs_its_limit_once_and_is_told_when_it_has_come_to_its_end(
    answers: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = FolderLooks(limit_s=2.0)
    row = [FolderLook("a", "x", lambda: 1), FolderLook("b", "x", hanging(answers, 2)), FolderLook("c", "x", lambda: 3)]
    seen = looks.look_at_all(row)
    assert [seen[0].value, seen[1].value, seen[2].value] == [1, None, 3]
    assert isinstance(seen[1].error, FolderHangs)
    monkeypatch.setattr("nnilite._keeper.folder_looks._Row.await_end", lambda *_: pytest.fail("it is waited for again"))
    for name in ("x", "another"):
        with pytest.raises(FolderHangs):
            looks.look("b", name, lambda: 7)
    monkeypatch.undo()
    answers.set()
    eventually(lambda: not looks.hanging())
    assert looks.look("b", "x", lambda: 7) == 2, "what it had found after all"
    assert looks.look("b", "x", lambda: 7) == 7


def test_what_has_no_name_is_not_given_to_another(answers: threading.Event) -> None:
    looks = FolderLooks(limit_s=0.1)
    with pytest.raises(FolderHangs):
        looks.look("b", "", hanging(answers, 2))
    looks.limit_s = 60.0  # what is well may be slow
    answers.set()
    eventually(lambda: not looks.hanging())
    assert looks.look("b", "", lambda: 7) == 7


def test_where_many_hang_no_further_one_is_tried(answers: threading.Event) -> None:
    looks = FolderLooks(limit_s=0.05, most_hanging=3)
    before = threading.active_count()
    seen = looks.look_at_all([FolderLook(str(number), "", hanging(answers, number)) for number in range(20)])
    assert all(isinstance(one.error, FolderHangs) for one in seen)
    assert threading.active_count() - before <= 3
    with pytest.raises(FolderHangs, match="3 other folders of trials hang"):
        looks.look("one more", "", lambda: 1)


def test_one_thread_makes_looks_that_come_one_after_the_other_and_ends_when_none_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nnilite._keeper.folder_looks._IDLE_S", 0.5)
    looks = FolderLooks()
    thread = looks.look("a", "", threading.current_thread)
    eventually(lambda: looks.look("b", "", threading.current_thread) is thread)
    eventually(lambda: not thread.is_alive())
    assert looks.look("c", "", threading.current_thread) is not thread


def test_a_thread_that_hangs_makes_no_looks_of_others(answers: threading.Event) -> None:
    looks = FolderLooks(limit_s=60.0)
    first = looks.look("a", "", threading.current_thread)
    looks.limit_s = 0.1
    with pytest.raises(FolderHangs):
        looks.look("b", "", hanging(answers, 2))
    looks.limit_s = 60.0  # what is well may be slow
    assert looks.look("c", "", threading.current_thread) is not first
    answers.set()
    eventually(lambda: not looks.hanging())
    assert looks.look("b", "", lambda: 7) == 7


def test_what_is_no_error_of_a_disk_is_raised() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        FolderLooks().look("a", "", fail)


def test_where_no_thread_can_be_started_nothing_is_seen_now(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    with pytest.raises(OSError, match="no thread can be started"):
        FolderLooks().look("a", "", lambda: 1)


def test_a_look_that_is_begun_tells_its_end_once_and_whoever_asks_earlier_gives_it_up(answers: threading.Event) -> None:
    looks, ends = FolderLooks(), threading.Semaphore(0)
    result = looks.begin(FolderLook("a", "", lambda: 1), ends.release)
    assert ends.acquire(timeout=60)
    assert (result().get(), ends.acquire(blocking=False)) == (1, False)
    result = looks.begin(FolderLook("b", "x", hanging(answers, 2)), ends.release)
    assert isinstance(result().error, FolderHangs)
    known = looks.begin(FolderLook("b", "x", lambda: 7), ends.release)
    assert ends.acquire(blocking=False)
    assert isinstance(known().error, FolderHangs)
    answers.set()
    eventually(lambda: not looks.hanging())
    assert looks.look("b", "x", lambda: 7) == 2


def test_where_no_thread_can_be_started_a_look_ends_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    ends = threading.Semaphore(0)
    result = FolderLooks().begin(FolderLook("a", "", lambda: 1), ends.release)
    assert ends.acquire(blocking=False)
    with pytest.raises(OSError, match="no thread can be started"):
        result().get()
