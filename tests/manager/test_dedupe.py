"""Numbered events: duplicates are dropped, gaps are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnilite._engine.dedupe import GapFound, MetricCursor, MetricCursors, OutputLimits, fresh
from nnilite.records import Exited, KeeperEvent, MetricKind, Output, Reported, Started


def metric(index: int) -> Reported:
    return Reported(index, MetricKind.PERIODICAL, index, 0.0, 0.0)


SPOOL: list[KeeperEvent] = [Started(0.0), *map(metric, range(9)), Exited(1.0, 0)]


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 11))))
def test_any_overlapping_batches_give_every_event_once_and_in_order(cuts: list[tuple[int, int]]) -> None:
    cursor, taken = MetricCursor(), []
    for start, length in [*cuts, (0, 11)]:
        try:
            found = fresh(cursor, SPOOL[start : start + length])
        except GapFound:
            continue
        cursor = found.cursor
        taken += found.events
    assert [e for e in taken if isinstance(e, Reported)] == SPOOL[1:-1]
    assert sum(isinstance(e, Started) for e in taken) == 1
    assert sum(isinstance(e, Exited) for e in taken) == 1


@given(st.binary(max_size=50), st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20))))
def test_output_comes_once_whatever_chunks_overlap(text: bytes, cuts: list[tuple[int, int]]) -> None:
    cursor, got = MetricCursor(), b""
    for start, length in [*cuts, (0, 50)]:
        try:
            found = fresh(cursor, [Output("stdout", start, text[start : start + length])])
        except GapFound:
            continue
        cursor = found.cursor
        got += b"".join(chunk.data for chunk in found.output)
    assert got == text


def test_a_gap_is_refused() -> None:
    with pytest.raises(GapFound):
        fresh(MetricCursor(), [metric(0), metric(2)])


def test_a_gap_that_nothing_will_fill_is_told_and_what_follows_it_is_taken() -> None:
    found = fresh(MetricCursor(), [metric(0), metric(2), metric(5)], over_gaps=True)
    assert found.missing == "metric 1 did not arrive; metrics 3 to 4 did not arrive"
    assert found.events == [metric(0), metric(2), metric(5)]
    assert found.cursor == MetricCursor(metrics=6)


@pytest.mark.parametrize("over_gaps", [False, True])
def test_reports_that_are_missing_at_the_end_are_told(over_gaps: bool) -> None:
    found = fresh(MetricCursor(), [metric(0), Exited(9.0, 0, metrics=3)], over_gaps)
    assert found.missing == "metrics 1 to 2 did not arrive"
    assert fresh(MetricCursor(), [metric(0), Exited(9.0, 0, metrics=1)], over_gaps).missing == ""


def test_output_after_a_gap_keeps_its_place() -> None:
    found = fresh(MetricCursor(), [Output("stdout", 4, b"late")], over_gaps=True)
    assert found.output == [Output("stdout", 4, b"late")]


@pytest.mark.parametrize("offset", [8, 10, 11, 2**53 - 1])
def test_output_beyond_its_limit_counts_as_taken_and_is_left_out(offset: int) -> None:
    found = fresh(MetricCursor(output={"stdout": 4}), [Output("stdout", offset, b"more")], True, OutputLimits(10))
    assert found.output == ([Output("stdout", 8, b"mo")] if offset == 8 else [])
    assert found.cursor.output == {"stdout": offset + 4}


def test_what_is_looked_at_is_not_taken_yet() -> None:
    cursor = MetricCursor()
    fresh(cursor, [metric(0), Output("stdout", 0, b"x")])
    assert cursor == MetricCursor()


def test_the_cursors_least_in_use_are_forgotten() -> None:
    cursors = MetricCursors()
    for number in range(10_001):
        cursors.put((f"t{number}", 0), MetricCursor(metrics=number))
    assert cursors.get(("t0", 0)) is None
    assert cursors.get(("t1", 0)) == MetricCursor(metrics=1)


@pytest.mark.parametrize(("ranks", "kept"), [(0, {"stderr"}), (3, {"stderr", "roles", "rank-2"})])
def test_streams_that_trials_do_not_have_are_left_out(ranks: int, kept: set[str]) -> None:
    """A worker could fill the disk with thousands of them, each below its limit."""
    events = [Output(stream, 0, b"x") for stream in ("stderr", "roles", "rank-2", "rank-3", "rank-9999", "log")]
    found = fresh(MetricCursor(), events, limits=OutputLimits(10, ranks))
    assert {one.stream for one in found.output} == kept == set(found.cursor.output)


def test_the_records_of_ranks_have_a_limit_of_their_own() -> None:
    events = [Output("roles", 0, b"x" * 3_000_000), Output("roles", 3_000_000, b"x" * 3_000_000)]
    found = fresh(MetricCursor(), events, limits=OutputLimits(None, 2))
    assert sum(len(one.data) for one in found.output) == 4_000_000
