"""The server of the page of all experiments: its sign-in rules, and what is checked of what it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from manager.rest_server import Client, serving_application
from many_experiments import stopped
from nni_experiment import NniFolder
from nni_experiment import make as make_nni
from nnilite import _registry
from nnilite._hub.hub import Hub
from nnilite._hub.program import HubKeys, make_application
from nnilite._running.launch import ManagerOptions
from nnilite.testing import eventually

TOKEN = "a token for the page of all experiments"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A server that requires its token from everybody, with one stopped experiment `first`."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home of 'all' $HOME"))
    stopped("first", "the first one")
    found = Hub()
    with serving_application(lambda: make_application(found, TOKEN, ManagerOptions(), require_token=True)) as (
        application,
        port,
        loop,
    ):
        yield Client(cast(Any, HubKeys(TOKEN)), port, application, loop)
    found.close()


def listed(hub: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = hub.get("/experiments").json["experiments"]
    return found


def digest(hub: Client, experiment: str = "first") -> dict[str, Any]:
    """The digest of an experiment once it has been read."""

    def known() -> dict[str, Any] | None:
        return next(one["digest"] for one in listed(hub) if one["id"] == experiment)

    eventually(known, 60)
    return known() or {}


PATHS = (
    *(("GET", path) for path in ("/", "/hub/app.js", "/api/v1/experiments", "/api/v1/comparison?id=first")),
    *(("POST", f"/api/v1/{path}") for path in ("experiments", "checks", "experiments/first/open", "sign-in-links")),
    *(("DELETE", "/api/v1/experiments/first"), ("PUT", "/api/v1/experiments/first")),
)


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_nothing_is_served_without_a_sign_in_or_with_a_wrong_token(hub: Client, method: str, path: str) -> None:
    for bad in ("", "Bearer wrong"):
        reply = hub.ask(method, path, b"{}", Authorization=bad)
        assert reply.status == 401
        assert b"nnictl ui" in reply.body
    assert hub.ask("GET", "/api/v1/experiments", Cookie="nnilite-.ui=1.2", Authorization="").status == 401
    assert _registry.entry("first") is not None


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_requests_from_other_sites_are_refused_even_with_the_token(hub: Client, headers: dict[str, str]) -> None:
    assert hub.ask("DELETE", "/api/v1/experiments/first", **headers).status == 403
    assert _registry.entry("first") is not None


def test_a_link_signs_in_once_and_the_cookie_opens_the_page_but_no_experiment(hub: Client) -> None:
    path = hub.post("/sign-in-links", {}).json["path"]
    reply = hub.ask("GET", path, Authorization="")
    assert (reply.status, reply.headers["Location"]) == (303, "/")
    cookie = reply.headers["Set-Cookie"]
    assert cookie.startswith("nnilite-.ui=")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    signed = {"Authorization": "", "Cookie": cookie.partition(";")[0]}
    page = hub.ask("GET", "/", **signed)
    assert page.status == 200
    assert b"hub/app.js" in page.body
    assert hub.ask("GET", path, Authorization="").status == 401
    assert hub.ask("DELETE", "/api/v1/experiments/first", **signed).status == 403, "a browser says its origin"


def test_the_list_tells_of_stopped_experiments_and_of_those_of_nni(hub: Client) -> None:
    folder = make_nni(_registry.root(), NniFolder("oldone12"))
    before = sorted(path.name for path in folder.rglob("*"))
    assert {one["id"]: one["madeBy"] for one in listed(hub)} == {"first": "nnilite", "oldone12": "nni"}
    known = digest(hub)
    assert (sum(known["counts"].values()), known["maxTrials"], known["trouble"]) == (12, 12, "")
    assert known["best"] == pytest.approx(0.96, abs=0.1)
    assert digest(hub, "oldone12")["trouble"] == ""
    for method, verb, body in (("DELETE", "", None), ("POST", "/resume", {}), ("PUT", "", REMARKS)):
        reply = hub.ask(method, f"/api/v1/experiments/oldone12{verb}", body)
        assert (reply.status, "Microsoft NNI" in reply.json["error"]) == (409, True)
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_an_experiment_that_cannot_be_read_says_why_and_hides_no_other(hub: Client) -> None:
    (stopped("broken", "a broken one") / "nnilite.sqlite").write_bytes(b"no database")
    (_registry.root() / ".nnilite" / "lost.json").write_text("{")
    assert "nnilite.sqlite" in digest(hub, "broken")["trouble"]
    states = {one["id"]: (one["state"], bool(one["damage"])) for one in listed(hub)}
    assert states == {"first": ("STOPPED", False), "broken": ("STOPPED", False), "lost": ("DAMAGED", True)}


def test_a_deletion_takes_the_folder_and_nothing_that_does_not_look_like_one(hub: Client, tmp_path: Path) -> None:
    elsewhere = tmp_path / "mine"
    elsewhere.mkdir()
    _registry.add("odd", "", elsewhere, "local", 1.0)
    assert "is left alone" in hub.ask("DELETE", "/api/v1/experiments/odd").json["error"]
    assert elsewhere.is_dir()
    assert hub.ask("DELETE", "/api/v1/experiments/first").json == {"deleted": "first"}
    assert not (_registry.root() / "first").exists()
    assert _registry.entry("first") is None
    assert hub.ask("DELETE", "/api/v1/experiments/first").status == 404


def test_an_experiment_with_a_manager_is_not_deleted_and_one_without_is_not_stopped(hub: Client) -> None:
    with _registry.lock(_registry.root() / "first"):
        reply = hub.ask("DELETE", "/api/v1/experiments/first")
        assert (reply.status, "stop it before" in reply.json["error"]) == (409, True)
    assert hub.post("/experiments/first/stop", {}).status == 409


@pytest.mark.parametrize(
    "path", ["/experiments/..%2Fhome", "/experiments/.nnilite", "/experiments/fir", "/experiments/x%0a"]
)
def test_ids_that_are_none_or_only_begin_like_one_are_not_found(hub: Client, path: str) -> None:
    assert hub.ask("DELETE", f"/api/v1{path}").status == 404
    assert _registry.entry("first") is not None


REMARKS = {"name": "new name", "tags": ["baseline", "wide"], "note": "better than\nthe last", "revision": 0}
