"""What a keeper repeats in a log, and how it is read."""

from __future__ import annotations

import base64
import io
import json
import random
import zlib
from types import SimpleNamespace

import pytest

from nnilite._keeper import recap
from nnilite._keeper.link import MARK
from nnilite._keeper.stdout_link import StdoutLink
from nnilite.records import Exited, Reported, Started
from nnilite.services.keeper_folder import read_log

RUN = "r" * 32


@pytest.fixture
def printed(monkeypatch):
    """Return what a keeper prints to standard output."""
    stdout = io.BytesIO()
    monkeypatch.setattr("nnilite._keeper.stdout_link.sys", SimpleNamespace(stdout=SimpleNamespace(buffer=stdout)))
    return stdout


def start():
    return {"type": "started", "time": 1.0, "host": "h", "pid": 2, "run": RUN}


def report(index, value="0.5"):
    known = {"type": "metric", "index": index, "kind": "PERIODICAL", "sequence": index}
    return {**known, "value": value, "time": 1.0, "run": RUN}


def end(metrics):
    return {"type": "exit", "time": 9.0, "code": 0, "message": "", "cause": "", "run": RUN, "metrics": metrics}


def output(size):
    return {
        "type": "output",
        "stream": "stdout",
        "offset": 0,
        "data": base64.b64encode((b"x" * 9_999 + b"\n") * (size // 10_000)).decode(),
    }


def lines_of(printed):
    return printed.getvalue().splitlines(keepends=True)


def recaps(lines):
    return [line for line in lines if b'"type": "recap"' in line]


def test_all_events_are_repeated_before_the_end(printed):
    link = StdoutLink()
    link.post([start(), report(0)])
    link.post([report(1), end(2)])
    lines = lines_of(printed)
    assert recaps(lines) == [lines[-2]]
    events = read_log(b"".join(lines[-2:]))
    assert [type(event) for event in events] == [Started, Reported, Reported, Exited]
    assert events == [read_log(line)[0] for line in (*lines[:3], lines[-1])]


def test_of_more_reports_than_fit_the_last_ones_are_repeated_in_their_order(printed):
    link, number = StdoutLink(), 12_000
    draw = random.Random(1)
    for begin in range(0, number, 500):
        link.post([report(index, repr(draw.random())) for index in range(begin, begin + 500)])
    printed.seek(0)
    printed.truncate()
    link.post([end(number)])
    lines = recaps(lines_of(printed))
    assert 200_000 < sum(map(len, lines)) < 300_000
    assert max(map(len, lines)) < 16_000
    indices = [event.index for line in lines for event in read_log(line)]
    assert indices == list(range(indices[0], number))


def test_a_report_that_is_longer_than_a_line_is_left_out(printed):
    StdoutLink().post([report(0, json.dumps("x" * 30_000)), report(1), end(2)])
    [line] = recaps(lines_of(printed))
    assert [event.index for event in read_log(line)] == [1]


def test_a_trial_that_prints_much_has_recaps_on_the_way(printed):
    link = StdoutLink()
    for _ in range(9):
        link.post([output(1_000_000)])
    link.post([report(0)])
    for _ in range(9):
        link.post([output(1_000_000)])
    found = recaps(lines_of(printed))
    assert 1 <= len(found) <= 3
    assert [event.index for event in read_log(found[0])] == [0]


def test_a_trial_without_reports_repeats_its_start_alone(printed):
    StdoutLink().post([start(), end(0)])
    [line] = recaps(lines_of(printed))
    assert read_log(line) == [Started(1.0, "h", 2, RUN)]
    assert len(line) < 250


def test_a_job_that_was_not_begun_has_no_recap(printed):
    StdoutLink().post([end(0)])
    assert recaps(lines_of(printed)) == []


def packed(text: bytes) -> str:
    return base64.b64encode(zlib.compress(text)).decode()


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        "no base64",
        base64.b64encode(b"not compressed").decode(),
        base64.b64encode(zlib.compress(b"[]")[:-3]).decode(),
        packed(b'{"type": "metric"}'),
        packed(b"[1]"),
        packed(b'[{"type": "recap", "data": ""}]'),
        packed(b"[" * 20_000),
        packed(b"[\xff]"),
        packed(b"[" + b" " * 1_000_000 + b"]"),
    ],
)
def test_what_is_no_recap_is_left_out(data):
    line = MARK + json.dumps({"type": recap.TYPE, "data": data})
    assert read_log(f"{line}\n{MARK}{json.dumps(end(0))}") == [Exited(9.0, 0, run=RUN, metrics=0)]


def test_recaps_that_a_trial_makes_up_do_not_become_gigabytes():
    events = [{"type": "output", "stream": "stdout", "offset": 0, "data": base64.b64encode(bytes(33_000)).decode()}]
    line = MARK + json.dumps({"type": recap.TYPE, "data": packed(json.dumps(events).encode())}) + "\n"
    found = read_log(line * 500)
    assert 0 < sum(len(event.data) for event in found) < 4_000_000
    assert 500 * 33_000 > 4 * 4_000_000


def test_a_line_of_more_values_than_a_keeper_sends_is_left_out():
    many = [json.dumps({**report(0), "more": [[]] * number}) for number in (300_000, 10)]
    lines = "".join(f"{MARK}{each}\n" for each in (*many, json.dumps(report(1))))
    assert [event.index for event in read_log(lines)] == [0, 1]
