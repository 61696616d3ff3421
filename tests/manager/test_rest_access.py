"""Who may ask what: tokens, sign-in links, host names, origins, and what the logs tell of them."""

from __future__ import annotations

import http.client
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from manager.fake_backend import FakeBackend, filled
from manager.rest_server import Client, serving
from nnilite._logging.secret_filter import SecretFilter
from nnilite._rest import ServerOptions, listen, make_application
from nnilite._rest.auth import Access, HostNames
from nnilite._rest.routes import ROUTES
from nnilite.errors import ConfigError
from nnilite.testing import eventually
from page_session import PageSession

TOKEN = "manager-token-1234"
EXAMPLES = {
    "id": "End02",
    "stream": "stdout",
    "path": "trial.stdout",
    "name": "tuner",
    "digest": "a" * 64,
    "session": "a" * 64,
    "low": 0,
    "high": 9,
}
EVERY_CALL = [(route, method) for route in ROUTES for method in route.operations]
GUARDED_CALLS = [(route, method) for route, method in EVERY_CALL if route.access is not Access.OPEN]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path, TOKEN)) as client:
        yield client


def address(path: str, job: str = "nni-exp12345-Run01-0") -> str:
    return "/api/v1" + path.format(**EXAMPLES, job=job)


@pytest.mark.parametrize("authorization", ["", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \u00e9"])
def test_every_route_needs_a_token(client: Client, authorization: str) -> None:
    for route, method in GUARDED_CALLS:
        reply = client.ask(method, address(route.path), {}, Authorization=authorization)
        assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer"), route.path
    assert client.backend.revision == 2
    assert not client.backend.stopped


@pytest.mark.parametrize("path", ["/api", "/api/v1/nothing", "/api/v1/logs/x"])
def test_other_addresses_of_the_api_need_a_token_too(client: Client, path: str) -> None:
    assert client.ask("GET", path, Authorization="").status == 401


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.1.2.3", "127.0.0.1.evil.example:8080"])
def test_every_route_refuses_a_foreign_host_name(client: Client, host: str) -> None:
    for route, method in EVERY_CALL:
        assert client.ask(method, address(route.path), {}, Host=host).status == 403, route.path


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "https://[", "file://"])
def test_every_route_refuses_a_foreign_origin(client: Client, origin: str) -> None:
    for route, method in EVERY_CALL:
        assert client.ask(method, address(route.path), {}, Origin=origin).status == 403, route.path
    assert client.backend.revision == 2


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_may_link_here_and_cannot_read_in_the_background(client: Client, site: str) -> None:
    for mode, status in (("navigate", 200), ("no-cors", 403), ("cors", 403), ("websocket", 403)):
        assert client.get("/experiment", Sec_Fetch_Site=site, Sec_Fetch_Mode=mode).status == status


def test_a_form_of_another_site_cannot_change_anything(client: Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        assert client.post("/experiment/stop", {}, Content_Type=kind).status in (415, 403)
    assert client.post("/experiment/stop", {}, Sec_Fetch_Site="cross-site").status == 403
    assert client.post("/experiment/stop", {}, Sec_Fetch_Site="same-site").status == 403
    assert not client.backend.stopped


def test_the_own_origin_is_welcome(client: Client) -> None:
    origin = f"http://127.0.0.1:{client.port}"
    assert client.post("/experiment/stop", {}, Origin=origin, Sec_Fetch_Site="same-origin").status == 202


def test_no_answer_invites_another_origin(client: Client) -> None:
    reply = client.get("/experiment", Origin=f"http://127.0.0.1:{client.port}")
    assert not [name for name in reply.headers if name.lower().startswith("access-control")]


def test_the_token_of_a_trial_opens_its_callback_and_nothing_else(client: Client) -> None:
    token = "Bearer " + client.backend.callback_token("nni-exp12345-Run01-0")
    for route, method in GUARDED_CALLS:
        opened = client.ask(method, address(route.path), {"events": []}, Authorization=token).status
        assert (opened == 200) == (route.path == "/callback/{job}"), route.path
    assert client.callback("Run01", []).status == 200


def test_the_token_of_the_manager_opens_no_callback(client: Client) -> None:
    for route, method in EVERY_CALL:
        if route.access is Access.TRIAL:
            job = "nni-exp12345-Run01-0"
            assert client.ask(method, address(route.path), {"events": []}, X_Nnilite_Job=job).status == 401


@pytest.mark.parametrize("job", ["nni-exp12345-End02-0", "nni-exp12345-Run01-1", "nni-exp12345-Nope1-0", "x"])
def test_a_forged_job_is_refused_whether_it_exists_or_not(client: Client, job: str) -> None:
    token = client.backend.callback_token("nni-exp12345-Run01-0")
    reply = client.post(f"/callback/{job}", {"events": []}, Authorization=f"Bearer {token}")
    assert (reply.status, reply.json["error"]) == (401, "this is not the token of this job")


def test_a_job_that_is_not_there_is_told_to_who_has_its_token(client: Client) -> None:
    token = client.backend.callback_token("nni-exp12345-Nope1-0")
    reply = client.post("/callback/nni-exp12345-Nope1-0", {"events": []}, Authorization=f"Bearer {token}")
    assert reply.status == 404


@pytest.mark.parametrize(("path", "content"), [("/keeper.pyz", b"keeper"), (f"/code/{'a' * 64}", b"packed")])
def test_a_worker_fetches_keeper_and_code_with_its_token(client: Client, path: str, content: bytes) -> None:
    job = "nni-exp12345-Run01-0"
    token = f"Bearer {client.backend.callback_token(job)}"
    assert client.get(path, Authorization=token, X_Nnilite_Job=job).body == content
    assert client.get(path, Authorization=token).status == 401


def link_of(client: Client) -> str:
    path: str = client.post("/sign-in-links", {}).json["path"]
    return path.removeprefix("/#key=")


def ticket_for(client: Client, path: str) -> str:
    ticket: str = client.post("/tickets", {"path": path}).json["ticket"]
    return ticket


def test_a_ticket_opens_one_path_once(client: Client) -> None:
    ticket = ticket_for(client, "export")
    assert client.get(f"/export?format=csv&ticket={ticket}", Authorization="").status == 200
    assert client.get(f"/export?format=csv&ticket={ticket}", Authorization="").status == 401
    other = ticket_for(client, "export")
    assert client.get(f"/experiment?ticket={other}", Authorization="").status == 401
    assert client.get(f"/export?ticket={other}", Authorization="").status == 401, "it was used up"


def test_a_ticket_changes_nothing_and_is_made_for_nobody_else(client: Client) -> None:
    ticket = ticket_for(client, "experiment/stop")
    assert client.post(f"/experiment/stop?ticket={ticket}", {}, Authorization="").status == 401
    assert client.post("/tickets", {"path": "export"}, Authorization="").status == 401


@pytest.mark.parametrize(
    ("bind", "host", "known"),
    [
        ("127.0.0.1", "localhost:8080", True),
        ("127.0.0.1", "[::1]:8080", True),
        ("127.0.0.1", "LocalHost.", True),
        ("127.0.0.1", "manager.example", False),
        ("127.0.0.1", "192.168.1.2:8080", False),
        ("192.168.1.2", "192.168.1.2:8080", True),
        ("192.168.1.2", "192.168.1.3", False),
        ("0.0.0.0", "192.168.1.3:8080", True),
        ("", "[fe80::1]:8080", True),
        ("0.0.0.0", "rebound.example", False),
        ("0.0.0.0", "named.example", True),
        ("127.0.0.1", "127.0.0.1.rebound.example", False),
    ],
)
def test_host_names_follow_from_the_bind_address(bind: str, host: str, known: bool) -> None:
    assert HostNames(bind, ["Named.Example"] if host.startswith("named") else []).accepts(host) is known


def test_a_request_without_a_host_name_is_refused(client: Client) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
    connection.putrequest("GET", "/api/v1/experiment", skip_host=True)
    connection.endheaders()
    with connection.getresponse() as answer:
        assert answer.status == 400
    connection.close()


def test_refusals_for_want_of_a_token_do_not_fill_the_log(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(20):
        assert client.ask("GET", "/api/v1/experiment", Authorization="").status == 401
        assert client.callback("Run01", [], Authorization="Bearer wrong").status == 401
    lines = [record for record in caplog.records if record.getMessage().startswith("401 ")]
    assert len(lines) == 2, "one for each reason"
    monkeypatch.setattr("nnilite._logging.sparse_log.TELL_EVERY_S", 0.0)
    client.ask("GET", "/api/v1/experiment", Authorization="")
    # It is written after the answer.
    eventually(lambda: "19 more like this since the last such line" in caplog.text)


@pytest.mark.parametrize(
    "request_head",
    [
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "nonsense\r\n\r\n",
        "GET /api/v1/callback/x/proof HTTP/1.1\r\n\r\n",
    ],
    ids=["another host", "no http", "no host"],
)
def test_strangers_do_not_fill_the_log(client: Client, caplog: pytest.LogCaptureFixture, request_head: str) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", client.port), timeout=20) as caller:
            caller.sendall(request_head.encode())
            while caller.recv(1000):
                break
    eventually(lambda: caplog.records)
    assert len(caplog.records) == 1


def test_refused_batches_of_a_trial_do_not_fill_the_log(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(job: str, events: object) -> None:
        raise RuntimeError("a fault")

    caplog.set_level(logging.INFO)
    for _ in range(20):
        assert client.callback("Run01", b'{"events": 7}').status == 400
    monkeypatch.setattr(client.backend, "events", fail)
    for _ in range(20):
        assert client.callback("Run01", []).status == 500
    # One for each status, and a traceback.
    eventually(lambda: len(caplog.records) == 3)


def test_what_the_user_asks_in_vain_is_logged_each_time(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(3):
        assert client.get("/nothing").status == 404
    eventually(lambda: len(caplog.records) == 3)


def test_secrets_do_not_reach_the_logs(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    link, ticket = link_of(client), ticket_for(client, "export")
    page = PageSession(client.ask, link)
    page.get("/experiment")
    client.get(f"/export?ticket={ticket}", Authorization="")
    client.get(f"/nothing?token={TOKEN}")
    client.backend.failure = RuntimeError(f"Bearer {TOKEN}")
    client.get(f"/experiment?x={TOKEN}")
    client.get("/experiment")
    assert TOKEN not in caplog.text
    assert [secret for secret in (link, page.key, ticket) if secret in caplog.text] == []
    assert "token=********" in caplog.text


def test_the_filter_removes_tokens_and_keys_from_any_record() -> None:
    redact = SecretFilter(["hunter2"]).redact
    assert redact("GET /?token=abc&x=1 hunter2") == "GET /?token=********&x=1 ********"
    assert redact("Authorization: Bearer abc.def") == "Authorization: Bearer ********"
    assert redact("{'Cookie': 'nnilite-x=1.2'}") == "{'Cookie': ********"
    assert redact("X-Nnilite-Session: abc") == "X-Nnilite-Session: ********"
    assert redact("open http://localhost:8080/#key=abc-1 now") == "open http://localhost:8080/#key=******** now"


@pytest.mark.parametrize("host", ["0.0.0.0", "", "192.168.1.2"])
def test_without_a_token_only_this_machine_can_connect(tmp_path: Path, host: str) -> None:
    application = make_application(FakeBackend(tmp_path), ServerOptions(bind=host, own_user=True))
    with pytest.raises(ConfigError, match="needs a token"):
        listen(application, host, 0)


def test_only_the_patterns_that_a_request_may_match_are_compiled(client: Client) -> None:
    """That of all takes a while at the start of each manager."""
    assert client.get("/experiment").status == 200
    matchers = [rule.matcher for rule in client.application.wildcard_router.rules]
    compiled = [matcher for matcher in matchers if "_compiled" in vars(matcher)]
    assert 0 < len(compiled) < len(matchers) / 4
