"""Numbered events: duplicates are dropped, gaps are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnilite._manager.intake import Cursor, Cursors, OutOfStep, fresh
from nnilite.records import Exited, KeeperEvent, MetricKind, Output, Reported, Started


def metric(index: int) -> Reported:
    return Reported(index, MetricKind.PERIODICAL, index, 0.0, 0.0)


SPOOL: list[KeeperEvent] = [Started(0.0), *map(metric, range(9)), Exited(1.0, 0)]


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 11))))
def test_any_overlapping_batches_give_every_event_once_and_in_order(cuts: list[tuple[int, int]]) -> None:
    cursor, taken = Cursor(), []
    for start, length in [*cuts, (0, 11)]:
        try:
            taken += fresh(cursor, SPOOL[start : start + length])[0]
        except OutOfStep:
            continue
    assert [e for e in taken if isinstance(e, Reported)] == SPOOL[1:-1]
    assert sum(isinstance(e, Started) for e in taken) == 1
    assert sum(isinstance(e, Exited) for e in taken) == 1


@given(st.binary(max_size=50), st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20))))
def test_output_comes_once_whatever_chunks_overlap(text: bytes, cuts: list[tuple[int, int]]) -> None:
    cursor, got = Cursor(), b""
    for start, length in [*cuts, (0, 50)]:
        try:
            chunks = fresh(cursor, [Output("stdout", start, text[start : start + length])])[1]
        except OutOfStep:
            continue
        got += b"".join(chunk.data for chunk in chunks)
    assert got == text


def test_a_gap_leaves_the_cursor_where_it_was() -> None:
    cursor = Cursor()
    with pytest.raises(OutOfStep):
        fresh(cursor, [metric(0), metric(2)])
    assert cursor == Cursor()


def test_a_cursor_in_use_is_not_replaced_by_one_from_the_store() -> None:
    cursors = Cursors()
    cursors.add(("t", 0), Cursor(metrics=5))
    cursors.add(("t", 0), Cursor(metrics=2))
    found = cursors.get(("t", 0))
    assert found is not None
    assert found.metrics == 5
