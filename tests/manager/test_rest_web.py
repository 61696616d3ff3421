"""The user interface's files, the prefix, TLS, ports, and the OpenAPI document."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tornado.web import StaticFileHandler

import nnilite
from manager.fake_backend import FakeBackend, filled
from manager.rest_server import Client, serving
from nnilite._rest import ServerOptions, listen, make_application
from nnilite._rest.auth import Access
from nnilite._rest.routes import ROUTES
from nnilite.errors import ConfigError, Conflict

PAGES = Path(nnilite.__file__).parent / "_web"
TOKEN = "manager-token-1234"


@pytest.fixture
def web_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "web ui"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>ui</title>")
    (folder / "app.js").write_text("export {}")
    (folder / "leak").symlink_to(tmp_path / "outside.txt")
    return folder


@pytest.fixture
def client(tmp_path: Path, web_folder: Path) -> Iterator[Client]:
    with serving(filled(tmp_path), ServerOptions(web_folder=web_folder)) as client:
        yield client


def test_the_user_interface_is_served_under_a_strict_policy(client: Client) -> None:
    reply = client.ask("GET", "/")
    assert (reply.status, reply.body[:9]) == (200, b"<!doctype")
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("page", ["index.html", "hub.html"])
def test_the_policy_allows_the_one_script_that_stands_in_the_pages(client: Client, page: str) -> None:
    [script] = re.findall("<script>(.*?)</script>", (PAGES / page).read_text("utf-8"), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}';" in client.ask("GET", "/").headers["Content-Security-Policy"]


def test_scripts_have_a_type_that_browsers_run(client: Client) -> None:
    assert "javascript" in client.ask("GET", "/app.js").headers["Content-Type"]


def test_an_unchanged_file_is_not_sent_again(client: Client) -> None:
    tag = client.ask("GET", "/app.js").headers["Etag"]
    assert client.ask("GET", "/app.js", If_None_Match=tag).status == 304


def test_a_link_in_the_folder_is_not_followed(client: Client) -> None:
    assert client.ask("GET", "/leak").status in (403, 404)


@pytest.mark.parametrize(
    "path", ["%00", "app.js%00", "..%00/x", "%c0%ae", "x" * 5000, "../outside.txt", "%2e%2e%2foutside.txt"]
)
def test_an_odd_address_is_just_not_there(client: Client, path: str) -> None:
    reply = client.ask("GET", f"/{path}")
    assert (reply.status in (400, 403, 404), b"secret" in reply.body) == (True, False)


def test_only_reading_is_allowed(client: Client) -> None:
    reply = client.ask("POST", "/", {})
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")


def test_a_large_body_for_no_address_is_answered_and_not_kept(client: Client) -> None:
    for path in ("/", "/nothing", "/api/v1/nothing"):
        assert client.ask("POST", path, b" " * 20_000_000).status in (404, 405)


def test_every_answer_has_the_security_headers(client: Client) -> None:
    for path in ("/", "/nothing", "/api/v1/version", "/api/v1/nothing", "/api/v1/trials/End02/files/page.html"):
        headers = client.ask("GET", path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Frame-Options"] == "DENY"
        assert "Server" not in headers


def test_without_the_user_interface_a_plain_page_lists_the_api(tmp_path: Path) -> None:
    with serving(filled(tmp_path), ServerOptions(web_folder=tmp_path / "nothing")) as client:
        page = client.ask("GET", "/")
        assert (page.status, b"/api/v1/trials/{id}" in page.body) == (200, True)
        assert not re.search(rb"<script|style=|onload", page.body)
        assert client.ask("GET", "/other").status == 404
        assert (client.ask("HEAD", "/").status, client.ask("HEAD", "/").body) == (200, b"")


def test_the_pages_files_are_for_everybody_and_the_experiment_is_not(tmp_path: Path, web_folder: Path) -> None:
    with serving(filled(tmp_path, TOKEN), ServerOptions(web_folder=web_folder)) as client:
        for path in ("/", "/app.js"):
            assert client.ask("GET", path, Authorization="").status == 200
        reply = client.get("/experiment", Authorization="")
        assert (reply.status, b"nnictl webui url" in reply.body) == (401, True)


def test_a_stranger_who_reads_the_pages_files_keeps_nothing_open(client: Client) -> None:
    context = client.application.context
    before = context.activity.last
    with client.keeping() as line:
        assert line.ask("GET", "/app.js", Authorization="").status == 200
        assert not context.connections._busy, "such a connection may be closed for others"
    assert context.activity.last == before, "and it is no reason to stay for longer than idleTimeout"


def test_a_browser_forgets_the_cookies_of_earlier_versions(client: Client) -> None:
    reply = client.ask("GET", "/", Authorization="", Cookie="nnilite-exp12345=1.2; mine=3")
    (cookie,) = reply.headers.get_all("Set-Cookie")
    assert re.match(r'nnilite-exp12345="";.*expires=.*; Path=/$', cookie)
    assert client.ask("GET", "/", Authorization="").headers["Set-Cookie"] is None


def test_no_page_of_another_origin_keeps_hold_of_the_page(client: Client) -> None:
    assert client.ask("GET", "/").headers["Cross-Origin-Opener-Policy"] == "same-origin"


def test_a_large_file_is_whole(tmp_path: Path, web_folder: Path) -> None:
    content = bytes(range(256)) * 1000
    (web_folder / "large.js").write_bytes(content)
    with serving(filled(tmp_path), ServerOptions(web_folder=web_folder)) as client:
        assert client.ask("GET", "/large.js").body == content
        assert client.ask("GET", "/large.js", Range="bytes=1000-20000").body == content[1000:20001]


def test_a_file_is_compressed_for_who_takes_that_and_is_new_after_a_change(tmp_path: Path, web_folder: Path) -> None:
    file = web_folder / "large.js"
    with serving(filled(tmp_path), ServerOptions(web_folder=web_folder)) as client:
        for content in (b"let a = 1;\n" * 9000, b"let b = 2;\n" * 9000):
            file.write_bytes(content)
            reply = client.ask("GET", "/large.js", **{"Accept-Encoding": "gzip, br"})
            assert (reply.headers["Content-Encoding"], reply.headers["Vary"]) == ("gzip", "Accept-Encoding")
            assert len(reply.body) < len(content) / 20
            assert gzip.decompress(reply.body) == content
            StaticFileHandler.reset()  # tornado looks at a file's digest once
        known = {"Accept-Encoding": "gzip", "If-None-Match": client.ask("GET", "/large.js").headers["Etag"]}
        assert (client.ask("GET", "/large.js", **known).status, client.ask("GET", "/nobody.js", **known).status) == (
            304,
            404,
        )


def test_everything_moves_below_a_prefix(tmp_path: Path, web_folder: Path) -> None:
    with serving(filled(tmp_path, TOKEN), ServerOptions(web_folder=web_folder, url_prefix="/nni/abc/")) as client:
        path = client.ask("POST", "/nni/abc/api/v1/sign-in-links", {}).json["path"]
        assert path.startswith("/nni/abc/#key=")
        assert client.ask("GET", "/nni/abc/").status == 200
        assert client.ask("GET", "/nni/abc").headers["Location"] == "/nni/abc/"
        assert client.ask("GET", "/nni/abc/api/v1/openapi.json").json["servers"] == [{"url": "/nni/abc/api/v1"}]
        assert client.ask("GET", "/api/v1/version").status == 404


def test_an_address_that_leads_nowhere_has_a_link_to_the_page(tmp_path: Path, web_folder: Path) -> None:
    with serving(filled(tmp_path, TOKEN), ServerOptions(web_folder=web_folder, url_prefix="/nni/abc/")) as client:
        found = client.ask("GET", "/nni/abc/trials")
        assert (found.status, b'<a href="/nni/abc/">' in found.body) == (404, True)


def test_behind_a_proxy_of_any_name_its_own_pages_are_served_and_all_others_need_a_key(
    tmp_path: Path, web_folder: Path
) -> None:
    names = {"Host": "lab.example:443", "Origin": "https://lab.example:443"}
    with serving(filled(tmp_path, TOKEN), ServerOptions(web_folder=web_folder, url_prefix="/nni/abc/")) as client:
        assert client.ask("GET", "/nni/abc/", **names).status == 200
        address = "/nni/abc/api/v1/experiment"
        assert client.ask("GET", address, **names).status == 200
        assert client.ask("GET", address, **names, Authorization="").status == 401
        assert client.ask("GET", address, **{**names, "Origin": "https://other.example"}).status == 403
    with serving(filled(tmp_path / "other", TOKEN), ServerOptions(web_folder=web_folder)) as client:
        refused = client.ask("GET", "/api/v1/experiment", **names)
        assert refused.status == 403
        assert "behind a proxy start it with --url-prefix" in str(refused.json)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    more = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *more], check=True, capture_output=True, timeout=60)
    return certificate, key


@pytest.mark.process
def test_tls_is_spoken(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    with serving(filled(tmp_path, TOKEN), certificate=certificate[0], key=certificate[1]) as client:
        context = ssl.create_default_context(cafile=str(certificate[0]))
        with urllib.request.urlopen(f"https://127.0.0.1:{client.port}/", timeout=60, context=context) as reply:
            assert reply.status == 200


def test_a_wrong_certificate_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match="TLS certificate"):
        listen(make_application(FakeBackend(tmp_path)), "127.0.0.1", 0, tmp_path / "cert.pem", tmp_path / "key.pem")


def test_a_taken_port_gets_a_sentence(client: Client) -> None:
    with pytest.raises(Conflict, match=f"port {client.port} .* is taken .* --port"):
        listen(make_application(client.backend), "127.0.0.1", client.port)


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("192.0.2.1", 0), ("no.such.host.invalid", 0)]
)
def test_an_impossible_address_gets_a_sentence(tmp_path: Path, host: str, port: int) -> None:
    with pytest.raises(ConfigError):
        listen(make_application(FakeBackend(tmp_path, TOKEN)), host, port)


async def test_localhost_gets_one_port_for_all_its_addresses(tmp_path: Path) -> None:
    server = listen(make_application(FakeBackend(tmp_path)), "localhost", 0)
    server.stop()
    assert server.port > 0


# The OpenAPI document and the table of routes


def test_every_documented_call_is_served(client: Client) -> None:
    example = {"id": "End02", "stream": "stdout", "path": "trial.stdout", "name": "tuner", "digest": "a" * 64}
    example |= {"job": "x", "session": "a" * 64, "low": "0", "high": "9"}
    for path, calls in client.get("/openapi.json").json["paths"].items():
        for method in calls:
            status = client.ask(method.upper(), "/api/v1" + path.format(**example), {}).status
            assert status not in (405, 500), (method, path)
            assert status != 404 or "Content-Disposition" in path, (method, path)


def test_every_served_call_is_documented(client: Client) -> None:
    documented = client.get("/openapi.json").json["paths"]
    for route in ROUTES:
        handled = {name for name in ("get", "post", "put", "patch", "delete") if _implements(route.handler, name)}
        assert handled == set(documented[route.path]), route.path
    served = client.application.wildcard_router.rules
    assert len(served) == len(documented) + 2  # and the API's not-found, and the user interface


def _implements(handler: type, method: str) -> bool:
    owner = next(kind for kind in handler.__mro__ if method in vars(kind))
    return owner.__module__.startswith("nnilite._rest") or (owner.__name__, method) == ("WebSocketHandler", "get")


def test_the_document_names_every_parameter_of_every_path(client: Client) -> None:
    for path, calls in client.get("/openapi.json").json["paths"].items():
        for call in calls.values():
            named = {item["name"] for item in call["parameters"] if item["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path)), path


def test_the_document_has_no_dangling_reference(client: Client) -> None:
    document = client.get("/openapi.json").json
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)):
        assert name in document["components"]["schemas"]


def test_only_worker_routes_take_the_token_of_a_trial() -> None:
    assert {route.path for route in ROUTES if route.access is Access.TRIAL} == {
        "/callback/{job}",
        "/code/{digest}",
        "/keeper.pyz",
    }
    assert [route.path for route in ROUTES if route.access is Access.OPEN] == [
        "/sessions",
        "/sessions/{session}/proof",
        "/callback/{job}/proof",
    ]
