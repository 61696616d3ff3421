"""The spool: what is read of it is the same, however it was written and in whatever pieces it is read."""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnilite._keeper.spool import SpoolReader
from nnilite.errors import ConfigError
from nnilite.records import Exited, MetricKind, Output, Reported, Started
from nnilite.services import keeper_folder
from nnilite.services.keeper_events import parse_event


def make_nni_entry(value, kind="PERIODICAL", **more):
    record = {"parameter_id": 0, "trial_job_id": "x", "type": kind, "sequence": 9, "value": json.dumps(value), **more}
    data = json.dumps(record).encode() + b"\n"
    return b"ME%06d%b" % (len(data), data)


def read(content, final=True):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics"
        path.write_bytes(content)
        reader = SpoolReader(str(path))
        return reader.read(10**6, 10**9, final), reader


@pytest.mark.parametrize(
    ("line", "kind", "value"),
    [
        (b"final 0.93\n", "FINAL", "0.93"),
        (b"  Intermediate   1e-3 \r\n", "PERIODICAL", "0.001"),
        (b"final nan\n", "FINAL", "NaN"),
        (b"final -nan\n", "FINAL", "NaN"),
        (b"final -inf\n", "FINAL", "-Infinity"),
        (b"final .5", "FINAL", "0.5"),
        (b'final {"default": 1, "loss": [2]}\n', "FINAL", '{"default": 1, "loss": [2]}'),
        (make_nni_entry(0.5), "PERIODICAL", "0.5"),
        (make_nni_entry({"default": math.inf}, "FINAL"), "FINAL", '{"default": Infinity}'),
        (b'ME000051{"type": "FINAL", "value": 0.5, "sequence": 0}\n', "FINAL", "0.5"),
        (b'ME000051{"type": "FINAL", "value": "abc", "sequence": 0}\n', "FINAL", '"abc"'),
    ],
)
def test_reports_of_every_form_are_read(line, kind, value):
    (report,), reader = read(line)
    assert (report.number, report.kind, report.value, reader.unreadable) == (0, kind, value, 0)


@pytest.mark.parametrize("line", [b"0.93\n", b"final\n", b"final x\n", b"\xff\n", b"ME000005{\n", b"final 1 2\n"])
def test_other_lines_are_counted_and_one_is_shown(line):
    reports, reader = read(line)
    assert reports == []
    assert reader.unreadable == 1
    assert reader.example


def test_blank_lines_and_requests_of_nni_are_nothing():
    reports, reader = read(b"\n \n" + make_nni_entry(None, "REQUEST_PARAMETER"))
    assert (reports, reader.unreadable) == ([], 0)


def test_what_stands_behind_a_cut_line_is_found():
    reports, reader = read(make_nni_entry(1)[:40] + make_nni_entry(2) + b"interm" + make_nni_entry(3))
    assert [report.value for report in reports] == ["2", "3"]
    assert reader.unreadable == 0


def test_an_over_long_line_is_passed_over():
    reports, reader = read(b"final 1\n" + b"x" * 9_000_000 + b"\nfinal 2\n")
    assert [report.value for report in reports] == ["1", "2"]
    assert reader.unreadable == 1


def test_intermediate_results_are_numbered_by_their_place():
    reports, _ = read(make_nni_entry(1) + b"final 2\n" + b"intermediate 3\n" + make_nni_entry(4))
    assert [(report.number, report.sequence) for report in reports] == [(0, 0), (1, 0), (2, 1), (3, 2)]


def test_a_line_without_an_end_waits_until_the_trial_has_ended():
    assert read(b"final 1\nfinal 2", final=False)[0][-1].value == "1"
    assert read(b"final 1\nfinal 2", final=True)[0][-1].value == "2"


lines = st.one_of(
    st.floats().map(make_nni_entry),
    st.floats().map(lambda value: b"intermediate %r\n" % value),
    st.binary(max_size=30),
    st.text(max_size=30).map(lambda text: text.encode() + b"\n"),
    st.integers(1, 60).map(lambda length: make_nni_entry(0)[:length]),
)


@settings(max_examples=150)
@given(st.lists(lines, max_size=20), st.lists(st.integers(1, 200), max_size=20))
def test_reading_in_pieces_gives_what_reading_at_once_gives(pieces, steps):
    content = b"".join(pieces)
    whole, whole_reader = read(content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics"
        reader, reports = SpoolReader(str(path)), []
        for end in [*(sum(steps[: n + 1]) for n in range(len(steps))), len(content)]:
            path.write_bytes(content[:end])
            reports += reader.read(3, 100)
        while more := reader.read(2, 50, final=True):
            reports += more
    assert [report[:4] for report in reports] == [report[:4] for report in whole]
    assert reader.unreadable == whole_reader.unreadable


def test_the_public_reader_tells_all_events(tmp_path):
    inner = tmp_path / ".nni"
    inner.mkdir()
    (inner / "started").write_text(json.dumps({"time": 5.0, "pid": 12, "host": "box", "start": "1"}))
    (inner / "metrics").write_bytes(make_nni_entry(0.5, time=6.0) + make_nni_entry({"default": 1}, "FINAL", time=7.0))
    assert keeper_folder.read_events(tmp_path)[-1] == Reported(1, MetricKind.FINAL, 0, {"default": 1}, 7.0)
    (inner / "exit").write_text(json.dumps({"time": 8.0, "code": None, "message": "no"}))
    events = keeper_folder.read_events(tmp_path)
    assert events[0] == Started(5.0, "box", 12)
    assert events[1] == Reported(0, MetricKind.PERIODICAL, 0, 0.5, 6.0)
    assert events[-1] == Exited(8.0, None, "no")


def test_a_folder_without_a_keeper_has_no_events(tmp_path):
    assert keeper_folder.read_events(tmp_path) == []


def test_values_that_cannot_be_kept_say_so_in_the_folder_as_in_the_callback(tmp_path):
    (tmp_path / ".nni").mkdir()
    (tmp_path / ".nni/metrics").write_bytes(
        make_nni_entry(10**400) + b"final " + b"[" * 400 + b"]" * 400 + b"\nfinal 1\n"
    )
    first, second, third = keeper_folder.read_events(tmp_path)
    assert (first.value, "300 digits" in first.refused) == (None, True)
    assert (second.value, "100 deep" in second.refused) == (None, True)
    assert (third.value, third.refused) == (1, "")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"time": 1e400}', '{"code": "x", "time": 1}', '{"time": null}', "{}"])
def test_a_false_start_or_end_in_the_folder_is_left_out(tmp_path, text):
    (tmp_path / ".nni").mkdir()
    for name in ("started", "exit"):
        (tmp_path / ".nni" / name).write_text(text)
    assert [event for event in keeper_folder.read_events(tmp_path) if not isinstance(event, Started)] == []


def test_events_are_found_in_a_platforms_log():
    log = (
        "2026-01-01T00:00:00Z hello\n"
        '2026-01-01T00:00:00Z NNILITE_EVENT {"type": "started", "time": 1, "host": "h", "pid": 2}\n'
        'NNILITE_EVENT {"type": "metric", "index": 0, "kind": "FINAL", "sequence": 0, "value": "NaN", "time": 2}\n'
        'NNILITE_EVENT {"type": "output", "stream": "stdout", "offset": 0, "data": "aGk="}\n'
        'NNILITE_EVENT {"type": "exit", "time": 3, "code": -9, "message": "m"}\n'
        'NNILITE_EVENT {"type": "exit", "time"'
    )
    started, metric, output, exited = keeper_folder.read_log(log.encode())
    assert started == Started(1, "h", 2)
    assert math.isnan(metric.value)
    assert output == Output("stdout", 0, b"hi")
    assert exited == Exited(3, -9, "m")


@pytest.mark.parametrize(
    "event", [None, [], {}, {"type": "x"}, {"type": "exit"}, {"type": "started", "time": "now"}, {"type": []}]
)
def test_what_is_no_event_is_refused(event):
    with pytest.raises(ConfigError, match=r"."):
        parse_event(event)


def sparse(path, size, behind=b""):
    with path.open("ab") as file:
        file.truncate(size)
    with path.open("ab") as file:
        file.write(behind)


@pytest.mark.parametrize("kind", ["NULs", "empty lines"])
def test_a_spool_without_end_that_has_no_reports_is_given_up(tmp_path, kind):
    (tmp_path / ".nni").mkdir()
    path = tmp_path / ".nni/metrics"
    path.write_bytes(b"intermediate 1\n" + (b"\n" * 3_000_000 if kind == "empty lines" else b""))
    sparse(path, 60 << 30, b"\nintermediate 2\n")
    (tmp_path / ".nni/exit").write_text(json.dumps({"time": 8.0, "code": 0, "message": ""}))
    reported, end = keeper_folder.read_events(tmp_path)
    assert reported.value == 1
    assert ".nni/metrics has more than 64 MB that are not reports: nothing is read after byte " in end.message


def test_reports_behind_some_megabytes_of_something_else_are_read(tmp_path):
    (tmp_path / ".nni").mkdir()
    path = tmp_path / ".nni/metrics"
    path.write_bytes(b"intermediate 1\n")
    sparse(path, 40 << 20, b"\nintermediate 2\n")
    assert [event.value for event in keeper_folder.read_events(tmp_path)] == [1, 2]


def test_of_a_spool_elsewhere_no_more_is_copied_than_would_be_read(tmp_path):
    asked = []

    async def read(name, offset):
        asked.append(offset)
        if name == ".nni/metrics":
            return b"intermediate 1\n" + b"\0" * (4 << 20) if offset == 0 else b"\0" * (4 << 20)
        return b"\0" * (1 << 20)

    events = asyncio.run(keeper_folder.copied_events(tmp_path, read))
    assert [event.value for event in events] == [1]
    assert max(asked) < 100 << 20
