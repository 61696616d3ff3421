"""Who is closed for others among callers who have not proven who they are."""

from __future__ import annotations

from nnilite._network.unauthenticated_callers import UnauthenticatedCallers

MOST = 64


def full() -> UnauthenticatedCallers[int]:
    callers: UnauthenticatedCallers[int] = UnauthenticatedCallers(MOST)
    for caller in range(MOST):
        assert not callers.is_full
        callers.add(caller)
    return callers


def test_no_more_than_the_most_are_kept() -> None:
    callers = full()
    assert (callers.is_full, len(callers)) == (True, MOST)
    closed = callers.remove_one()
    assert closed is not None
    assert closed not in callers
    assert (callers.is_full, len(callers)) == (False, MOST - 1)


def outlived(rounds: int) -> bool:
    """Whether one outlives so many who come after it."""
    callers = full()
    for later in range(MOST, MOST + rounds):
        callers.remove_one()
        callers.add(later)
    return MOST - 1 in callers


def test_however_many_come_after_it_one_may_outlive_them() -> None:
    """By age, nobody would outlive as many as there is room for. By chance it is more than a third."""
    assert 40 < sum(outlived(MOST) for _ in range(200)) < 120


def test_the_newer_half_has_the_time_for_a_request() -> None:
    assert all(outlived(MOST // 2) for _ in range(200))


def test_those_who_only_connect_close_nobody_who_has_sent_a_head() -> None:
    callers = full()
    assert callers.note_valid_head(7) is None
    for later in range(MOST, 20 * MOST):
        if callers.is_full:
            assert callers.remove_one() != 7
        callers.add(later)
    assert 7 in callers


def test_heads_have_half_the_room_and_close_one_of_their_own() -> None:
    callers = full()
    assert [callers.note_valid_head(caller) for caller in range(MOST // 2)] == [None] * (MOST // 2)
    assert callers.note_valid_head(0) is None, "it has been heard before"
    closed = callers.note_valid_head(MOST - 1)
    assert closed in range(MOST // 2)
    assert closed not in callers
    assert len(callers) == MOST - 1


def test_where_nobody_is_silent_one_of_the_others_is_taken() -> None:
    callers: UnauthenticatedCallers[str] = UnauthenticatedCallers(MOST)
    callers.add("a")
    callers.note_valid_head("a")
    assert (callers.remove_one(), callers.remove_one()) == ("a", None)


def test_who_has_gone_is_not_there() -> None:
    callers = full()
    callers.note_valid_head(1)
    callers.remove(1)
    callers.remove(2)
    assert (1 in callers, 2 in callers, len(callers)) == (False, False, MOST - 2)
