"""The routes of what pages remember, and of what ran: on the server of an experiment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from manager.fake_backend import filled
from manager.rest_server import Client, serving


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    with serving(filled(tmp_path)) as client:
        yield client


def test_views_and_columns_are_kept_by_place_and_table(server: Client) -> None:
    put = server.ask("PUT", "/api/v1/page/views", {"place": "abc", "name": "failed", "address": "trials?state=FAILED"})
    assert (put.status, put.json["views"]) == (200, [{"name": "failed", "address": "trials?state=FAILED"}])
    assert server.ask("PUT", "/api/v1/page/columns", {"table": "trials x", "columns": ["p.x"]}).json["columns"] == [
        "p.x"
    ]
    assert server.get("/page?place=abc&table=trials%20x").json == {**put.json, "columns": ["p.x"]}
    assert server.get("/page?place=other").json == {"views": [], "columns": []}


@pytest.mark.parametrize("name", ["a\nb", "lr ", "a\x85b", "\tx"])
def test_columns_of_parameters_with_any_name_are_remembered(server: Client, name: str) -> None:
    body = {"table": f"trials {name}", "columns": ["sequence", f"p.{name}"]}
    assert server.ask("PUT", "/api/v1/page/columns", body).json["columns"] == body["columns"]
    assert server.get(f"/page?table={quote(body['table'])}").json["columns"] == body["columns"]


def test_what_is_no_view_is_refused(server: Client) -> None:
    refused = server.ask("PUT", "/api/v1/page/views", {"place": "abc", "name": "failed"})
    assert (refused.status, refused.json) == (400, {"error": "is needed", "field": "address"})
    refused = server.ask("PUT", "/api/v1/page/columns", {"table": "trials", "columns": "x"})
    assert (refused.status, refused.json["field"]) == (400, "columns")


def test_what_ran_is_told_for_each_start(server: Client) -> None:
    latest = server.get("/provenance").json
    assert (latest["times"], latest["start"]["nnilite"]) == ([900.0, 1001.0], "2")
    assert server.get("/provenance?start=0").json["start"]["nnilite"] == "1"
    assert server.get("/provenance?start=2").json["start"] is None
    [worker] = latest["workers"]
    assert worker["hosts"] == {"a": 1.0}
    found = server.get("/provenance?start=0&comparable=true").json["start"]
    assert (found["nnilite"], found["workers"]["python"]) == ("1", "3.12.1")
