"""The routes of the experiment and its trials, against a fake manager."""

from __future__ import annotations

import csv
import http.client
import io
import json
import socket
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._answers.late_request import HEADER, is_late, spell_until
from nnilite._keeper.process import boot_id
from nnilite._rest import ServerOptions
from nnilite._rest.changeable_fields import CHANGEABLE
from nnilite.errors import ServiceError, StoreError
from nnilite.records import ExperimentLimits, TrialState
from nnilite.records.shapes import schema_of
from nnilite.testing import eventually


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path)) as client:
        yield client


def test_the_profile_is_told_in_camel_case(client: Client) -> None:
    profile = client.get("/experiment").json
    assert profile["id"] == "exp12345"
    assert profile["limits"]["trialConcurrency"] == 2
    assert profile["counts"] == {"RUNNING": 1, "SUCCEEDED": 1}
    assert profile["best"]["id"] == "Run01"


def test_not_a_number_travels_as_a_string(client: Client) -> None:
    assert client.get("/trials/End02").json["value"] == {"default": "NaN", "loss": 2}


def test_a_handle_never_leaves_the_manager(client: Client) -> None:
    assert b"handle-secret" not in client.get("/trials/End02").body


def test_limits_can_be_changed(client: Client) -> None:
    reply = client.ask("PATCH", "/api/v1/experiment", {"trialConcurrency": 5, "maxExperimentDuration": "2h"})
    assert reply.status == 200
    assert reply.json["limits"]["trialConcurrency"] == 5
    assert client.backend.updates == {"concurrency": 5, "max_duration_s": 7200}
    client.ask("PATCH", "/api/v1/experiment", {"maxSlots": None, "priority": -3, "stopAtValue": -0.5})
    later = {"max_slots": None, "priority": -3, "stop_at_value": -0.5}
    assert client.backend.updates == {"concurrency": 5, "max_duration_s": 7200, **later}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"trialConcurrency": 0}, "trialConcurrency"),
        ({"trialConcurrency": True}, "trialConcurrency"),
        ({"trialConcurrency": None}, "trialConcurrency"),
        ({"maxTrialNumber": "ten"}, "maxTrialNumber"),
        ({"maxTrialDuration": []}, "maxTrialDuration"),
        ({"maxTrialDuration": "soon"}, "maxTrialDuration"),
        ({"maxSlots": 0}, "maxSlots"),
        ({"priority": 1.5}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 10**9 + 1}, "priority"),
        ({"searchSpace": []}, "searchSpace"),
        ({"trialConcurency": 1}, "trialConcurency"),
        ({}, None),
        ([], None),
    ],
)
def test_a_wrong_change_is_refused_with_its_field(client: Client, body: object, field: str | None) -> None:
    reply = client.ask("PATCH", "/api/v1/experiment", body)
    assert (reply.status, reply.json.get("field")) == (400, field)
    assert client.backend.updates == {}


def test_each_limit_can_be_changed() -> None:
    names = {field.name for field in fields(ExperimentLimits)}
    assert {field.name for field in CHANGEABLE.values()} == names | {"search_space"}
    assert set(CHANGEABLE) == {*schema_of(ExperimentLimits)["properties"], "searchSpace"}


def test_what_the_manager_refuses_is_answered_with_its_sentence(client: Client) -> None:
    reply = client.ask("PATCH", "/api/v1/experiment", {"searchSpace": {"refused": {}}})
    assert (reply.status, reply.json["error"]) == (400, "the tuner refuses it")


def test_stopping_is_asked_and_answered_at_once(client: Client) -> None:
    assert client.post("/experiment/stop", {}).status == 202
    assert client.backend.stopped


def test_trials_are_chosen_sorted_and_paged(client: Client) -> None:
    page = client.get("/trials?state=RUNNING&state=SUCCEEDED&descending=true&limit=1").json
    assert ([trial["id"] for trial in page["trials"]], page["total"]) == (["End02"], 2)
    assert [trial["id"] for trial in client.get("/trials?idPrefix=Run").json["trials"]] == ["Run01"]


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "offset=-1", "state=running", "sort=size", "limit=1&limit=2", "descending=1", "x=1"],
)
def test_a_wrong_query_is_refused_with_its_field(client: Client, query: str) -> None:
    reply = client.get(f"/trials?{query}")
    assert (reply.status, reply.json["field"]) == (400, query.partition("=")[0])


@pytest.mark.parametrize(("waits_s", "status"), [(-0.1, 409), (60.0, 201)])
def test_what_comes_when_its_sender_no_longer_waits_is_not_done(client: Client, waits_s: float, status: int) -> None:
    before = client.get("/trials").json["total"]
    answer = client.post("/trials", {"parameters": {"x": 0.25}}, **{HEADER: spell_until(waits_s)})
    assert answer.status == status, answer
    assert client.get("/trials").json["total"] == before + (status == 201)


@pytest.mark.parametrize(
    "until", ["", "x", "an-earlier-boot 1.0", f"{boot_id()} x", f"{boot_id()} nan", f"{boot_id()}"]
)
def test_a_time_that_says_nothing_here_refuses_nothing(until: str) -> None:
    assert not is_late(until)


def test_a_trial_can_be_added_and_cancelled(client: Client) -> None:
    added = client.post("/trials", {"parameters": {"x": 0.125}})
    assert (added.status, added.json["parameters"], added.json["warning"]) == (201, {"x": 0.125}, "")
    cancelled = client.ask("DELETE", f"/api/v1/trials/{added.json['id']}")
    assert cancelled.json["state"] == "USER_CANCELED"
    assert client.ask("DELETE", f"/api/v1/trials/{added.json['id']}").status == 409


@pytest.mark.parametrize(
    ("parameters", "word"),
    [({"x": 7}, "outside the search space (x: "), ({"y": 0.5}, "y is not"), ({"x": 0, "TRIAL_BUDGET": 3}, "")],
)
def test_parameters_outside_of_the_space_are_run_with_a_warning(client: Client, parameters: object, word: str) -> None:
    added = client.post("/trials", {"parameters": parameters})
    assert added.status == 201
    assert word in added.json["warning"]
    assert bool(word) == bool(added.json["warning"])


def test_an_elastic_trial_is_scaled(client: Client) -> None:
    assert client.ask("PUT", "/api/v1/trials/Run01/workers", {"workers": 3}).json["id"] == "Run01"
    assert client.backend.workers == {"Run01": 3}
    refused = client.ask("PUT", "/api/v1/trials/Run01/workers", {"workers": 9})
    assert (refused.status, refused.json["error"]) == (409, "trial Run01 cannot have 9 workers")
    assert client.ask("PUT", "/api/v1/trials/Nope1/workers", {"workers": 3}).status == 404


def test_a_running_trial_is_interrupted(client: Client) -> None:
    reply = client.ask("POST", "/api/v1/trials/Run01/interrupt", {})
    assert (reply.status, reply.json["id"]) == (202, "Run01")
    assert client.ask("POST", "/api/v1/trials/Run01/interrupt", {"now": True}).status == 400
    assert client.ask("POST", "/api/v1/trials/Nope1/interrupt", {}).status == 404


@pytest.mark.parametrize("body", [{}, {"workers": 0}, {"workers": True}, {"workers": "3"}, {"workers": 3, "x": 1}])
def test_a_wrong_number_of_workers_is_refused(client: Client, body: object) -> None:
    assert client.ask("PUT", "/api/v1/trials/Run01/workers", body).status == 400
    assert client.backend.workers == {}


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b'{"parameters":{"x":NaN}}', b'{"parameters":{"x":1e999}}', b"[" * 90_000]
)
def test_a_body_that_is_no_strict_json_is_refused(client: Client, body: bytes) -> None:
    reply = client.post("/trials", body)
    assert reply.status == 400
    assert len(client.backend.kept) == 2


def test_an_unknown_trial_is_not_found(client: Client) -> None:
    for path in ("/trials/Nope1", "/trials/Nope1/metrics", "/trials/Nope1/files", "/trials/Nope1/output/stdout"):
        assert client.get(path).status == 404
    assert client.post("/trials/rerun", {"ids": ["Nope1"]}).status == 404


def test_trials_are_run_again_by_id_or_by_state(client: Client) -> None:
    assert client.post("/trials/rerun", {"ids": ["End02"]}).json["trials"][0]["attempt"] == 1
    assert client.post("/trials/rerun", {"state": "SUCCEEDED"}).json["trials"] == []


@pytest.mark.parametrize(
    "body", [{}, {"ids": []}, {"ids": [1]}, {"state": "RUNNING"}, {"ids": ["a"], "state": "FAILED"}]
)
def test_a_wrong_choice_of_trials_to_run_again_is_refused(client: Client, body: object) -> None:
    assert client.post("/trials/rerun", body).status == 400


def test_metrics_are_paged_by_the_cursor_of_the_page_before(client: Client) -> None:
    first = client.get("/metrics?limit=1").json
    second = client.get(f"/metrics?limit=1&after={first['next']}").json
    assert [page["metrics"][0]["index"] for page in (first, second)] == [0, 1]
    assert client.get(f"/metrics?after={second['next']}").json == {"metrics": [], "next": second["next"]}


def test_metrics_of_one_kind(client: Client) -> None:
    found = client.get("/trials/End02/metrics?kind=FINAL").json["metrics"]
    assert [metric["value"] for metric in found] == [{"default": "NaN", "loss": 2}]


def test_output_is_read_in_pieces(client: Client) -> None:
    client.backend.outputs["End02", "stdout"] = b"hello world"
    reply = client.get("/trials/End02/output/stdout?offset=6&limit=3")
    assert (reply.body, reply.headers["X-Next-Offset"], reply.headers["X-Total-Size"]) == (b"wor", "9", "11")
    assert client.get("/trials/End02/output/stdout?offset=-5").body == b"world"


@pytest.mark.parametrize("path", ["/trials/End02/output/stdout", "/logs/tuner"])
def test_no_browser_takes_what_a_trial_has_printed_for_a_page(client: Client, path: str) -> None:
    client.backend.outputs["End02", "stdout"] = b"<script>alert(1)</script>"
    headers = client.get(path).headers
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_logs_are_read(client: Client) -> None:
    assert client.get("/logs/tuner").body == b"log of the tuner\n"
    assert client.get("/logs/shadow").status == 404


def test_results_from_elsewhere_are_imported(client: Client) -> None:
    reply = client.post("/import", [{"parameter": {"x": 1}, "value": 0.5}])
    assert reply.json == {"imported": 1, "known": 0, "warning": ""}
    assert client.backend.pairs == [({"x": 1}, 0.5)]
    assert client.post("/import", [{"parameter": 1, "value": 0.5}]).json["field"] == "[0]"


def test_a_warning_about_imported_results_is_sent(client: Client) -> None:
    client.backend.import_warning = "1 of 3 results is taken"
    assert client.post("/import", []).json["warning"] == "1 of 3 results is taken"


def test_ended_trials_are_exported_as_json(client: Client) -> None:
    assert [trial["id"] for trial in client.get("/export").json] == ["End02"]
    client.backend.kept.clear()
    assert client.get("/export").json == []


def test_ended_trials_are_exported_as_csv(client: Client) -> None:
    reply = client.get("/export?format=csv")
    rows = list(csv.DictReader(io.StringIO(reply.body.decode())))
    assert [(row["id"], row["value"], row["parameter.x"], row["metric.loss"]) for row in rows] == [
        ("End02", "NaN", "0.5", "2")
    ]
    assert reply.headers["Content-Disposition"] == 'attachment; filename="exp12345.csv"'


def test_no_text_of_a_trial_is_a_formula_in_a_spreadsheet(client: Client) -> None:
    ended = client.backend.kept["End02"]
    client.backend.kept["End02"] = replace(ended, parameters={"x": -1}, value={"default": 2, "note": "=HYPERLINK(1)"})
    [row] = csv.DictReader(io.StringIO(client.get("/export?format=csv").body.decode()))
    assert (row["parameter.x"], row["metric.note"]) == ("-1", "'=HYPERLINK(1)")


def test_a_large_export_is_sent_whole(client: Client) -> None:
    enlarge(client, 5000)
    assert len(client.get("/export").json) == 5001


def enlarge(client: Client, trials: int) -> None:
    ended = replace(client.backend.kept["End02"], parameters={"x": "y" * 1000})
    client.backend.kept |= {f"t{number}": ended for number in range(trials)}


def test_an_export_that_fails_midway_is_not_taken_for_whole(client: Client) -> None:
    enlarge(client, 2000)
    client.backend.export_ends_after = 1500
    with pytest.raises(http.client.IncompleteRead):
        client.get("/export")
    assert client.get("/export?format=csv").status == 503  # which reads all before it sends anything


def test_a_reader_that_takes_nothing_is_let_go(tmp_path: Path) -> None:
    with serving(filled(tmp_path / "b"), ServerOptions(reader_timeout_s=0.2, own_user=True)) as client:
        enlarge(client, 20_000)
        with socket.create_connection(("127.0.0.1", client.port), timeout=60) as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.sendall(b"GET /api/v1/export HTTP/1.1\r\nHost: localhost\r\n\r\n")
            eventually(lambda: client.backend.exports_closed == 1)


def test_other_experiments_of_this_machine_are_listed(client: Client) -> None:
    assert [item["id"] for item in client.get("/experiments").json["experiments"]] == ["exp12345"]


def test_a_viewed_experiment_is_not_changed(client: Client) -> None:
    client.backend.read_only = True
    before = client.backend.revision
    assert client.post("/trials", {"parameters": {}}).status == 409
    assert client.ask("PATCH", "/api/v1/experiment", {"trialConcurrency": 1}).status == 409
    assert client.ask("DELETE", "/api/v1/trials/Run01").status == 409
    assert client.backend.revision == before


def test_a_manager_that_cannot_now_says_try_again(client: Client) -> None:
    for error in (StoreError("the disk is full"), ServiceError("no answer from the cluster")):
        client.backend.failure = error
        reply = client.get("/experiment")
        assert (reply.status, reply.json["error"], reply.headers["Retry-After"]) == (503, str(error), "1")


def test_an_unforeseen_error_tells_no_details(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.backend.failure = RuntimeError("password=hunter2")
    reply = client.get("/experiment")
    assert (reply.status, b"hunter2" in reply.body) == (500, False)
    assert "RuntimeError" in caplog.text


def test_an_unknown_address_or_method_is_answered_in_json(client: Client) -> None:
    assert "openapi" in client.get("/nothing").json["error"]
    reply = client.ask("PUT", "/api/v1/experiment", {})
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, PATCH")


def test_answers_are_strict_json_whatever_users_report(client: Client) -> None:
    value = '{"a": [Infinity, -Infinity, "\\ud800"]}'
    event = {"type": "metric", "index": 0, "kind": "FINAL", "sequence": 0, "value": value, "time": 1.0}
    assert client.callback("Run01", [event]).status == 200
    assert client.get("/trials/Run01").json["value"] == {"a": ["Infinity", "-Infinity", "?"]}
    assert client.backend.kept["Run01"].state is TrialState.RUNNING
    assert json.loads(client.get("/export").body)
