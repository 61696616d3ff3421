"""The trial callback: what it takes, what it refuses, and that nothing a worker sends can harm the manager."""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from call_counts import count_calls
from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._rest import ServerOptions
from nnilite._rest.events import parse_batch
from nnilite._rest.refusal import HttpRefusal
from nnilite._rest.route_definition import BODY_MAX
from nnilite.errors import ConfigError
from nnilite.records import Exited, MetricKind, Output, Reported, Started
from nnilite.services import keeper_events
from nnilite.testing import eventually

LONG_INPUTS = int(os.environ.get("NNILITE_FUZZ_INPUTS", "100000"))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path)) as client:
        yield client


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Client]:
    """The client of a server that waits for no request."""
    with serving(filled(tmp_path), ServerOptions(body_timeout_s=0.3, head_timeout_s=0.3)) as client:
        yield client


def metric(index: int, value: str = "0.5") -> dict[str, Any]:
    return {"type": "metric", "index": index, "kind": "PERIODICAL", "sequence": index, "value": value, "time": 1.0}


def output(offset: int, data: bytes) -> dict[str, Any]:
    return {"type": "output", "stream": "stdout", "offset": offset, "data": base64.b64encode(data).decode()}


STARTED = {"type": "started", "time": 5.0, "host": "worker", "pid": 7}
EXIT = {"type": "exit", "time": 9.0, "code": 0, "message": ""}


def test_a_batch_is_committed_and_its_cursors_are_answered(client: Client) -> None:
    reply = client.callback("Run01", [STARTED, metric(0), metric(1, "NaN"), output(0, b"hello"), EXIT])
    assert reply.json == {"cancel": False, "metrics": 2, "output": {"stdout": 5, "stderr": 0}}
    assert client.backend.kept["Run01"].state == "SUCCEEDED"


def test_an_empty_batch_is_a_heartbeat(client: Client) -> None:
    before = client.backend.revision
    assert client.callback("Run01", []).json["metrics"] == 0
    assert client.backend.revision == before


def test_a_replayed_batch_changes_nothing(client: Client) -> None:
    batch = [STARTED, metric(0), output(0, b"hello"), EXIT]
    first = client.callback("Run01", batch)
    before = client.backend.revision
    assert client.callback("Run01", batch).json == first.json
    assert client.backend.revision == before


def test_a_gap_is_answered_with_where_to_resend_from(client: Client) -> None:
    client.callback("Run01", [metric(0)])
    reply = client.callback("Run01", [metric(5)])
    assert (reply.status, reply.json["metrics"], reply.json["output"]) == (409, 1, {"stdout": 0, "stderr": 0})


def test_the_keeper_of_a_fenced_attempt_is_told_to_end(client: Client) -> None:
    client.backend.fenced.add(client.backend.find_job("Run01"))
    reply = client.callback("Run01", [metric(0)])
    assert (reply.status, reply.json["reason"]) == (410, "this attempt was silent for too long")


def test_a_cancel_travels_with_the_answer(client: Client) -> None:
    client.backend.canceled.add("Run01")
    assert client.callback("Run01", []).json["cancel"] is True


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (1, "events[0]"),
        ({}, "events[0].type"),
        ({"type": []}, "events[0].type"),
        (metric(-1), "events[0].index"),
        (metric(2**53), "events[0].index"),
        ({**metric(0), "index": True}, "events[0].index"),
        ({**metric(0), "index": 0.0}, "events[0].index"),
        ({**metric(0), "kind": "LAST"}, "events[0].kind"),
        ({**metric(0), "kind": {}}, "events[0].kind"),
        ({**metric(0), "sequence": None}, "events[0].sequence"),
        ({**metric(0), "value": 0.5}, "events[0].value"),
        ({**metric(0), "time": "now"}, "events[0].time"),
        ({**metric(0), "time": 1e12}, "events[0].time"),
        ({**STARTED, "host": "h" * 300}, "events[0].host"),
        ({**STARTED, "pid": -1}, "events[0].pid"),
        ({**output(0, b""), "stream": "stdin"}, "events[0].stream"),
        ({**output(0, b""), "data": "a"}, "events[0].data"),
        ({**output(0, b""), "data": "\u00e9"}, "events[0].data"),
        ({**EXIT, "code": "0"}, "events[0].code"),
        ({**EXIT, "code": 2**40}, "events[0].code"),
        ({**EXIT, "message": 1}, "events[0].message"),
        ({**EXIT, "cause": "boredom"}, "events[0].cause"),
    ],
)
def test_a_wrong_event_is_refused_with_its_field(client: Client, event: Any, field: str) -> None:
    before = client.backend.revision
    reply = client.callback("Run01", [event])
    assert (reply.status, reply.json["field"]) == (400, field)
    assert not reply.json["error"].startswith(field), "whoever shows both would repeat it"
    assert client.backend.revision == before


@pytest.mark.parametrize(
    ("batch", "field"),
    [
        ([metric(0), metric(2)], "events[1].index"),
        ([metric(1), metric(1)], "events[1].index"),
        ([output(0, b"abc"), output(2, b"d")], "events[1].offset"),
        ([STARTED, STARTED], "events[1].type"),
        ([metric(0), STARTED], "events[1].type"),
        ([EXIT, EXIT], "events[1].type"),
        ([EXIT, metric(0)], "events[1].type"),
    ],
)
def test_events_out_of_order_are_refused_whole(client: Client, batch: list[Any], field: str) -> None:
    before = client.backend.revision
    reply = client.callback("Run01", batch)
    assert (reply.status, reply.json["field"]) == (400, field)
    assert client.backend.revision == before


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"null", b'{"events":{}}', b"\xff\xfe", b"[" * 100_000, b'{"events":[NaN]}']
)
def test_a_body_that_is_no_batch_is_refused(client: Client, body: bytes) -> None:
    reply = client.callback("Run01", body)
    assert reply.status == 400
    assert reply.json["error"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0.5 0.6", "it is not JSON"),
        ("[", "it is not JSON"),
        ("[" * 200 + "]" * 200, "nested more than 100 deep"),
        ("[" * 100_000, "nested more than 100 deep"),
        ("1" * 400, "more than 300 digits"),
    ],
)
def test_a_value_that_cannot_be_kept_becomes_null_and_says_why(text: str, why: str) -> None:
    body = json.dumps({"events": [metric(0, text), metric(1, "0.5")]}).encode()
    refused, kept = parse_batch(body)
    assert isinstance(refused, Reported)
    assert refused.value is None
    assert why in refused.refused
    assert kept == Reported(1, MetricKind.PERIODICAL, 1, 0.5, 1.0)


def test_a_lone_surrogate_in_a_value_is_replaced_since_nothing_can_be_made_of_it_later() -> None:
    reported = parse_batch(json.dumps({"events": [metric(0, '{"a\\ud800": "b\ud800"}')]}).encode())[0]
    assert isinstance(reported, Reported)
    assert (reported.value, reported.refused) == ({"a?": "b?"}, "")


def test_texts_that_no_store_could_keep_are_made_harmless() -> None:
    event = {**STARTED, "host": "a\ud800b\0c"}
    assert parse_batch(json.dumps({"events": [event]}).encode()) == [Started(5.0, "a?bc", 7)]


def test_events_become_records() -> None:
    body = json.dumps({"events": [metric(3, '{"default": 1}'), output(4, b"\0\xff"), EXIT]}).encode()
    reported, printed, exited = parse_batch(body)
    assert isinstance(reported, Reported)
    assert reported.value == {"default": 1}
    assert printed == Output("stdout", 4, b"\0\xff")
    assert exited == Exited(9.0, 0, "")


def test_more_than_ten_thousand_events_are_too_many(client: Client) -> None:
    assert client.callback("Run01", [EXIT] * 10_001).status == 413


@pytest.mark.parametrize("unit", [b"[],", b'{"a":0},'], ids=["lists", "objects"])
def test_a_body_with_too_many_values_is_refused_before_it_is_parsed(client: Client, unit: bytes) -> None:
    reply = client.callback("Run01", b'{"events":[' + unit * (4_000_000 // len(unit)) + b"0]}")
    assert (reply.status, "send less" in reply.json["error"]) == (413, True)


def _report(index: int, value: str) -> dict[str, Any]:
    return {"type": "metric", "index": index, "kind": "PERIODICAL", "sequence": index, "value": value, "time": 1.0}


def test_metrics_whose_texts_have_too_many_values_are_refused_before_they_are_parsed() -> None:
    many = "[" + "[]," * 150_000 + "0]"
    with pytest.raises(HttpRefusal, match="send less"):
        parse_batch(json.dumps({"events": [_report(index, many) for index in range(2)]}).encode())
    [alone] = parse_batch(json.dumps({"events": [_report(0, "[" + "[]," * 250_000 + "0]")]}).encode())
    assert isinstance(alone, Reported)
    assert (alone.value, alone.refused) == (None, "it has more than 200000 lists and objects")


def test_brackets_in_strings_and_many_numbers_are_not_too_much() -> None:
    texts = [json.dumps('[{"\\' * 150_000), json.dumps([0] * 300_000)]
    events = parse_batch(json.dumps({"events": [_report(n, text) for n, text in enumerate(texts)]}).encode())
    assert [event.refused for event in events if isinstance(event, Reported)] == ["", ""]


_TEXT = st.text(alphabet='a,[{"\\')


@given(
    st.recursive(
        st.none() | st.integers() | _TEXT,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    )
)
def test_values_are_counted_without_parsing_them(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper_events, "_FEW_VALUES", 0)
        counted = keeper_events.count_values(json.dumps(value).encode())
    assert _number_of_values(value) <= counted <= 2 * _number_of_values(value)


def _number_of_values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_number_of_values, inner))


def test_a_body_over_eight_megabytes_is_refused_before_it_is_read(client: Client) -> None:
    reply = client.callback("Run01", b" " * (8 * 1024 * 1024 + 1))
    assert (reply.status, "send less" in reply.json["error"]) == (413, True)


def test_a_body_of_eight_megabytes_is_taken(client: Client) -> None:
    head = b'{"events":[]}'
    assert client.callback("Run01", head + b" " * (8 * 1024 * 1024 - len(head))).status == 200


def raw(client: Client, head: str, body: bytes = b"") -> bytes:
    """Send bytes as they are, and read until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as link:
        link.sendall(head.replace("\n", "\r\n").encode() + body)
        received = b""
        while chunk := link.recv(65536):
            received += chunk
        return received


def status_line(client: Client, head: str, body: bytes = b"") -> bytes:
    """Send bytes as they are, and read the first line of the answer."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as link, link.makefile("rb") as answer:
        link.sendall(head.replace("\n", "\r\n").encode() + body)
        return answer.readline()


def head_of(client: Client, *headers: str) -> str:
    job = client.backend.find_job("Run01")
    token = client.backend.callback_token(job)
    lines = [f"POST /api/v1/callback/{job} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", *headers]
    return "\n".join([*lines, "Content-Type: application/json", "", ""])


@pytest.mark.parametrize("claim", [str(10**12), "9" * 5000])
def test_a_claimed_terabyte_is_refused_by_its_claim(client: Client, claim: str) -> None:
    assert b" 413 " in status_line(client, head_of(client, f"Content-Length: {claim}"))


@pytest.mark.parametrize("claim", ["-1", "1e3", "0x10", "5, 6", "\u0665"])
def test_a_claim_that_is_no_length_is_refused(client: Client, claim: str) -> None:
    assert b" 400 " in status_line(client, head_of(client, f"Content-Length: {claim}"), b"{}")


def test_a_chunked_body_is_refused(client: Client) -> None:
    head = head_of(client, "Transfer-Encoding: chunked")
    assert b" 411 " in status_line(client, head, b"2\r\n{}\r\n0\r\n\r\n")


def test_a_refusal_keeps_the_connection_for_the_next_batch(client: Client) -> None:
    with client.keeping() as line:
        for body in (b"", b"{", b"x" * 1000):
            line.post("/callback/x", body, Authorization="Bearer wrong")
            used = line.kept.sock
            assert line.callback("Run01", []).status == 200
            assert line.kept.sock is used


def test_a_compressed_body_is_refused(client: Client) -> None:
    assert client.callback("Run01", b"\x1f\x8b", Content_Encoding="gzip").status == 415


def test_a_client_that_never_sends_its_body_is_let_go(hasty: Client) -> None:
    assert raw(hasty, head_of(hasty, "Content-Length: 100"), b"{") == b""  # it would wait for a minute


def test_a_client_that_never_ends_its_headers_is_let_go(hasty: Client) -> None:
    assert raw(hasty, "POST /api/v1/callback/x HTTP/1.1\nHost: local") == b""


ODD = st.sampled_from(
    [None, True, 0, -1, 0.5, 1e300, 2**53, 2**64, "", "x", "stdout", "FINAL", "1e999", "[", "a\0", "\ud800"]
)
NESTED = st.recursive(ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD.map(str), inner, max_size=3))
JSON = ODD | ODD | st.integers() | st.text(max_size=6) | NESTED
FIELDS = [
    "type",
    "index",
    "kind",
    "sequence",
    "value",
    "time",
    "stream",
    "offset",
    "data",
    "host",
    "pid",
    "code",
    "message",
]
TYPES = st.sampled_from(["metric", "output", "started", "exit"])
SOUND = st.sampled_from([metric(0), STARTED, EXIT, output(0, b"x")])
TWISTED = st.builds(lambda event, name, value: {**event, name: value}, SOUND, st.sampled_from(FIELDS), JSON)
LOOSE = st.builds(lambda kind, more: {**more, "type": kind}, TYPES, st.dictionaries(st.sampled_from(FIELDS), JSON))
BATCH = st.lists(TWISTED | LOOSE | SOUND | JSON, max_size=4).map(lambda events: {"events": events})
TEXT = (BATCH | BATCH | JSON).map(lambda value: json.dumps(value).encode())
CUT = st.builds(
    lambda body, at, bytes_in: body[:at] + bytes_in + body[at:], TEXT, st.integers(0, 99), st.binary(max_size=3)
)
BODY = TEXT | TEXT | CUT | st.binary(max_size=100)
JOBS = st.sampled_from(["nni-exp12345-Run01-0", "nni-exp12345-Run01-0", "nni-exp12345-Run01-1", "x"])
TOKENS = st.sampled_from(["right", "right", "right", "wrong", ""])


def check_fuzzed(folder: Path, inputs: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    answered: Counter[int] = Counter()
    with serving(filled(folder)) as client, client.keeping() as line:

        @settings(max_examples=inputs, database=None, suppress_health_check=list(HealthCheck))
        @given(JOBS, BODY, TOKENS)
        def send(job: str, body: bytes, token: str) -> None:
            before = client.backend.revision
            right = client.backend.callback_token(job) if token == "right" else token
            reply = line.post(f"/callback/{job}", body, Authorization=f"Bearer {right}")
            answered[reply.status] += 1
            accepted = reply.status == 200 and token == "right"
            assert accepted or client.backend.revision == before
            assert accepted or reply.json["error"]

        send()
    assert set(answered) <= {200, 400, 401, 404, 409, 413}
    assert answered[200] > 0 < answered[400]
    assert "Traceback" not in caplog.text


@pytest.mark.timeout(600)
def test_nothing_a_worker_sends_breaks_the_manager(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    check_fuzzed(tmp_path, 500, caplog)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_nothing_a_worker_sends_breaks_the_manager_in_a_long_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check_fuzzed(tmp_path, LONG_INPUTS, caplog)


@given(BODY)
@settings(max_examples=300, database=None)
def test_any_bytes_are_either_a_batch_or_one_clear_error(body: bytes) -> None:
    try:
        events = parse_batch(body)
    except (ConfigError, HttpRefusal) as error:
        events = []
        sentence = str(error)
    else:
        sentence = "fine"
    assert sentence
    assert all(isinstance(event, Started | Reported | Output | Exited) for event in events)


def test_to_read_a_metric_takes_the_same_few_steps_in_a_large_batch() -> None:
    """`benchmarks/intake.py` has the seconds."""
    few, many = (count_calls(partial(parse_batch, batch_of(count))) for count in (1_000, 10_000))
    assert many < 10_000 * 60  # 46 are needed for each
    assert many < 10.5 * few


def batch_of(metrics: int) -> bytes:
    return json.dumps({"events": [metric(at, '{"default": 0.5, "loss": 0.25}') for at in range(metrics)]}).encode()


def first_bytes(client: Client, head: str, body: bytes = b"") -> bytes:
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as caller:
        caller.sendall(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
        return caller.recv(1000)


def head_with(client: Client, token: str, length: int, more: str = "") -> str:
    job = client.backend.find_job("Run01")
    about = f"Authorization: Bearer {token}\nContent-Type: application/json\nContent-Length: {length}\n{more}"
    return f"POST /api/v1/callback/{job} HTTP/1.1\nHost: localhost\n{about}"


def test_who_asks_first_whether_a_body_is_wanted_is_answered_by_the_head_alone(client: Client) -> None:
    right, expect = client.backend.callback_token(client.backend.find_job("Run01")), "Expect: 100-continue\n"
    assert first_bytes(client, head_with(client, "wrong", 1000, expect)).startswith(b"HTTP/1.1 401")
    assert first_bytes(client, head_with(client, right, 1000, expect)).startswith(b"HTTP/1.1 100")


def test_of_a_stranger_no_long_body_is_waited_for(client: Client) -> None:
    assert first_bytes(client, head_with(client, "wrong", 1_000_000)).startswith(b"HTTP/1.1 401")


def test_a_trial_has_room_for_some_reports_at_a_time_and_gets_it_back(client: Client) -> None:
    token = client.backend.callback_token(client.backend.find_job("Run01"))
    head, room = head_with(client, token, BODY_MAX).replace("\n", "\r\n") + "\r\n", client.application.context.bodies
    with ExitStack() as opened:
        for number in (1, 2):
            keeper = opened.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=20))
            keeper.sendall(head.encode())
            eventually(lambda held=number * BODY_MAX: room._all == held)
        assert client.callback("Run01", []).status == 503
        assert client.callback("End02", []).status == 200
    eventually(lambda: room._all == 0)
    assert client.callback("Run01", []).status == 200


def test_a_request_that_has_no_body_leaves_none_in_memory(client: Client) -> None:
    job = client.backend.find_job("Run01")
    nonce = "a" * 32
    head = f"GET /api/v1/callback/{job}/proof?nonce={nonce} HTTP/1.1\nHost: localhost\nContent-Length: 8000000\n"
    assert first_bytes(client, head).startswith(b"HTTP/1.1 413")
