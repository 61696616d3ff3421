"""Calls to a platform over HTTP: a real server that is slow, cut, overloaded, wrong, huge, or somebody else."""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import logging
import shutil
import ssl
import subprocess
import threading
import time
import tracemalloc
from dataclasses import dataclass

import pytest

from nnilite import platform_http as http
from nnilite._network.interactive_calls import limit_patience
from nnilite.errors import ConfigError, Conflict, JobRefused, NotFound, ServiceError
from nnilite.platform_http import Credential, HttpConfig, HttpRequest, PlatformHttp
from nnilite.testing import eventually
from nnilite.testing.listener import Handler, Listener
from nnilite.units import Secret, SecretText
from waiting import pause_async

TOKEN = "the-token-of-this-user"


class Platform(Handler):
    """Does what the list of its steps says, one request after the other, and then answers {"ok": true}."""

    def do_GET(self):
        owner = self.owner
        with owner.lock:
            owner.seen.append((self.command, self.path, self.token(), self.body(), self.headers))
            step = owner.steps.pop(0) if owner.steps else None
        if step is None:
            self.send(200, "application/json", b'{"ok": true}')
        else:
            step(self)

    do_POST = do_PUT = do_DELETE = do_GET


def answer(status, content=b"", kind="application/json", **headers):
    return lambda handler: handler.send(status, kind, content, **headers)


def cut(handler, status=200):
    handler.send_response(status)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"half": ')
    hang_up(handler)


def hang_up(handler):
    handler.close_connection = True
    handler.connection.shutdown(2)


def drip(handler):
    """One byte after the other: no single wait is long."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    for _ in range(100000):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        if handler.owner.closed.wait(0.1):
            return


def silence(handler):
    handler.owner.closed.wait(100)


class State:
    def __init__(self):
        self.steps, self.seen = [], []
        self.lock, self.closed = threading.Lock(), threading.Event()


@dataclass(frozen=True, kw_only=True)
class Config(HttpConfig):
    password: Secret | None = None


@pytest.fixture
def platform(monkeypatch):
    monkeypatch.setattr("nnilite.platform_http._patience.PAUSE_S", (0.02, 0.1))
    state = State()
    server = Listener(Platform, state)
    server.start()
    state.server = server
    yield state
    state.closed.set()
    server.stop()


def run(platform, *requests, config=None, credential=None, together=False):
    """The answers to these requests, one after the other or all at once."""

    async def all_of_them():
        client = PlatformHttp("Pai", platform.server.url, config or Config(), credential or Credential(TOKEN))
        try:
            if together:
                return await asyncio.gather(*(client.call(request) for request in requests))
            return [await client.call(request) for request in requests]
        finally:
            await client.close()

    return asyncio.run(all_of_them())


def failure(platform, request, **more):
    with pytest.raises(http.Problem) as raised:
        run(platform, request, **more)
    return raised.value


GET = HttpRequest("GET", "/jobs")
POST = HttpRequest("POST", "/jobs", body={"name": "a"})


def test_a_call_brings_the_credential_query_and_body_and_gives_json(platform, tmp_path):
    (tmp_path / "package").write_bytes(b"\0" * 300_000)
    requests = [HttpRequest("GET", "jobs", {"user": "a b"}), POST, HttpRequest("PUT", "/p", body=tmp_path / "package")]
    answers = run(platform, *requests)
    assert [each.json() for each in answers] == [{"ok": True}] * 3
    assert [seen[:3] for seen in platform.seen] == [
        ("GET", "/jobs?user=a+b", TOKEN),
        ("POST", "/jobs", TOKEN),
        ("PUT", "/p", TOKEN),
    ]
    assert platform.seen[1][3] == b'{"name": "a"}'
    assert platform.seen[2][3] == b"\0" * 300_000


@pytest.mark.parametrize("step", [answer(503), answer(502), answer(429), hang_up, cut], ids=range(5))
def test_what_may_be_repeated_is_tried_again(platform, step):
    platform.steps = [step, step]
    assert run(platform, GET)[0].json() == {"ok": True}
    assert len(platform.seen) == 3


@pytest.mark.parametrize("step", [answer(503), answer(500), hang_up, cut], ids=range(4))
def test_what_may_have_been_done_is_not_repeated(platform, step):
    platform.steps = [step]
    assert isinstance(failure(platform, POST), http.Outage)
    assert len(platform.seen) == 1


def test_a_call_that_the_platform_was_too_busy_for_is_repeated_and_so_is_one_that_says_it_may(platform):
    platform.steps = [answer(429), None, answer(503)]
    platform.steps[1] = answer(200, b"{}")
    run(platform, POST, HttpRequest("POST", "/search", repeat=True))
    assert len(platform.seen) == 4


def test_a_platform_that_cannot_be_connected_to_has_done_nothing(platform, monkeypatch):
    platform.server.stop()

    def come_back(*_):
        if not platform.server.listens:
            platform.server.start()
        return 1.0

    monkeypatch.setattr(http.client.random, "uniform", come_back)  # it is asked for the pause before the second try
    assert run(platform, POST)[0].json() == {"ok": True}
    assert len(platform.seen) == 1


def test_an_outage_that_lasts_is_told_as_one_within_the_time(platform):
    platform.server.stop()
    problem = failure(platform, HttpRequest("GET", "/jobs", {"password": "x"}, patience_s=0.3))
    assert isinstance(problem, ServiceError)
    advice = "check that its address is right, and no firewall blocks it"
    assert str(problem) == f"Pai cannot be reached: Connection refused; {advice} (GET {platform.server.url}/jobs)"


def test_where_a_person_waits_a_call_has_less_patience(platform, monkeypatch):
    platform.server.stop()
    tries = []
    monkeypatch.setattr("nnilite.platform_http.client.random.uniform", lambda *bounds: tries.append(bounds) or 10.0)
    with limit_patience(0.2):
        failure(platform, HttpRequest("GET", "/jobs"))
    assert len(tries) == 1  # the pause before a second try would be longer than that


@pytest.mark.parametrize("step", [silence, drip])
def test_a_call_ends_in_time_however_slow_the_platform_is(platform, step):
    platform.steps = [step]
    begin = time.monotonic()
    problem = failure(platform, HttpRequest("GET", "/jobs", timeout_s=0.5, patience_s=0))
    assert isinstance(problem, http.Outage)
    assert time.monotonic() - begin < 20, "it lasts 100 s if it is waited for"


def drip_head(handler):
    """A header that does not end."""
    for piece in (b"HTTP/1.1 200 OK\r\nX: ", *[b"x"] * 100000):
        handler.wfile.write(piece)
        handler.wfile.flush()
        if handler.owner.closed.wait(0.05):
            return


@pytest.mark.parametrize("step", [drip, drip_head])
async def test_a_platform_that_sends_a_byte_now_and_then_holds_no_thread(platform, step):
    platform.steps += [step] * 3
    client = PlatformHttp("Pai", platform.server.url, Config(), Credential(TOKEN))
    for _ in range(3):
        with pytest.raises(http.Outage, match="answer"):
            await client.call(HttpRequest("GET", "/jobs", timeout_s=0.1, patience_s=0.0))
    await asyncio.to_thread(eventually, lambda: not [one for one in threading.enumerate() if one.name == "blocking"])
    await client.close()


def test_a_connection_is_kept_from_one_call_to_the_next(platform):
    ports = []
    platform.steps += [lambda handler: (ports.append(handler.client_address), answer(200, b"{}")(handler))] * 3
    run(platform, GET, GET, GET)
    assert len(set(ports)) == 1


@pytest.mark.parametrize("spell", [lambda: "1", lambda: email.utils.formatdate(time.time() + 2, usegmt=True)])
def test_the_time_that_the_platform_asks_for_is_waited(platform, spell):
    platform.steps = [answer(429, Retry_After=spell())]
    begin = time.monotonic()
    run(platform, GET)
    assert time.monotonic() - begin > 0.5


async def test_a_platform_that_asks_for_much_patience_is_left_alone(platform):
    platform.steps = [answer(503, Retry_After="600")]
    client = PlatformHttp("Pai", platform.server.url, Config())
    with pytest.raises(http.Outage):
        await client.get("/jobs")
    with pytest.raises(http.Throttled) as raised:
        await client.get("/jobs")
    problem = raised.value
    assert 590 < problem.retry_after_s <= 600
    assert len(platform.seen) == 1


@pytest.mark.parametrize("value", ["soon", "-5", "nan", "1e999", "Wed, 99 Foo", ""])
def test_a_time_that_makes_no_sense_is_none(value):
    assert http.retry_after_s(value) == 0


# who calls


def test_an_expired_token_is_renewed_once_for_all_calls_that_wait_for_it(platform):
    renewals = []

    def check(handler):
        good = handler.token() == "new-token"
        handler.send(200 if good else 401, "application/json", b"{}")

    async def renew():
        renewals.append(len(renewals))
        await pause_async(0.1, "a renewal takes its time, and others ask meanwhile")
        return "new-token"

    platform.steps = [check] * 20
    run(platform, GET, GET, POST, GET, credential=Credential("old-token", renew), together=True)
    assert renewals == [0]


def test_a_token_that_is_refused_at_once_again_is_told_with_the_cure(platform):
    async def renew():
        return "another-token"

    platform.steps = [answer(401), answer(401, b'{"message": "who are you, another-token?"}')]
    problem = failure(platform, GET, credential=Credential("", renew))
    assert isinstance(problem, http.AccessRefused)
    assert problem.reply == "who are you, ********?"
    assert "check that the login is right and has not expired" in str(problem)
    assert len(platform.seen) == 2


async def test_a_login_is_made_before_the_first_call_where_there_is_no_token(platform):
    async def renew():
        return (await client.call(HttpRequest("POST", "/login", anonymous=True))).json()["token"]

    platform.steps = [answer(200, b'{"token": "fresh-token"}')]
    client = PlatformHttp("Pai", platform.server.url, Config(), Credential(renew=renew))
    await client.get("/jobs")
    assert [seen[1:3] for seen in platform.seen] == [("/login", ""), ("/jobs", "fresh-token")]


def test_nothing_but_the_credential_says_who_calls(platform, tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    platform.steps = [answer(200, b"{}", Set_Cookie="session=1")]
    run(platform, GET, GET)
    assert [seen[2] for seen in platform.seen] == [TOKEN, TOKEN]
    assert not platform.seen[1][4].get("Cookie")


# answers


@pytest.mark.parametrize(
    ("status", "kind", "core"),
    [
        (400, http.CallRefused, JobRefused),
        (401, http.AccessRefused, ServiceError),
        (403, http.AccessRefused, ServiceError),
        (404, http.Missing, NotFound),
        (409, http.Contradiction, Conflict),
        (413, http.RequestTooLarge, ConfigError),
        (429, http.Throttled, ServiceError),
        (500, http.Outage, ServiceError),
        (504, http.Outage, ServiceError),
    ],
)
def test_each_refusal_is_an_error_of_its_kind_with_the_platforms_words(platform, status, kind, core):
    platform.steps = [answer(status, b'{"code": "X", "message": "the reason"}')]
    problem = failure(platform, HttpRequest("GET", "/jobs", patience_s=0))
    assert type(problem) is kind
    assert isinstance(problem, core)
    assert (problem.status, problem.reply) == (status, "the reason")
    assert f"Pai answers {status} to GET {platform.server.url}/jobs: the reason" in str(problem)


@pytest.mark.parametrize(
    ("content", "kind", "reply"),
    [
        (b"<html>a page", "text/html", ""),
        (b"plain \n words", "text/plain", "plain words"),
        (b'{"error": {"message": "inner"}}', "application/json", "inner"),
        (b'{"error": {"code": 401, "reason": "Refused", "error": "innermost"}}', "application/json", "innermost"),
        (b"\xff\xfe", "text/plain", "\ufffd\ufffd"),
        (b"[" * 100_000, "application/json", "[" * 500),
        (
            b"Traceback (most recent call last):\n  File b\nValueError: it is there\n.\n",
            "text/plain",
            "ValueError: it is there",
        ),
    ],
    ids=range(7),
)
def test_the_platforms_words_are_found_in_whatever_it_sends(platform, content, kind, reply):
    platform.steps = [answer(400, content, kind)]
    assert failure(platform, GET).reply == reply


@pytest.mark.parametrize("content", [b"<html>sign in here", b"", b"[" * 100_000, b"\xff"], ids=range(4))
def test_an_answer_that_is_not_json_is_an_outage(platform, content):
    platform.steps = [answer(200, content)]
    with pytest.raises(http.Outage, match="answered with something other than JSON"):
        run(platform, GET)[0].json()


def test_a_refusal_is_one_even_if_its_answer_breaks_off(platform):
    platform.steps = [lambda handler: cut(handler, 400)]
    problem = failure(platform, HttpRequest("GET", "/jobs", patience_s=0))
    assert (type(problem), problem.status) == (http.CallRefused, 400)


@pytest.mark.parametrize("status", [400, 404, 503])
def test_a_refusal_is_one_of_its_kind_however_long_its_answer_is(platform, status):
    platform.steps = [answer(status, b"too much. " * 500_000, "text/plain")]
    problem = failure(platform, HttpRequest("GET", "/jobs", max_bytes=100_000, patience_s=0))
    assert problem.status == status
    assert problem.reply.startswith("too much. too much.")


@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_that_is_too_large_is_not_taken(platform, packed):
    content = b" " * 5_000_000
    more = {"Content_Encoding": "gzip"} if packed else {}
    platform.steps = [answer(200, gzip.compress(content) if packed else content, **more)]
    problem = failure(platform, HttpRequest("GET", "/log", max_bytes=100_000, patience_s=0))
    assert f"answers with more than 100000 bytes (GET {platform.server.url}/log)" in str(problem)


def test_an_answer_that_is_compressed_twice_fills_no_memory(platform):
    content = gzip.compress(gzip.compress(bytes(256 << 20)))
    platform.steps = [answer(200, content, Content_Encoding="gzip, gzip")]
    tracemalloc.start()
    try:
        problem = failure(platform, HttpRequest("GET", "/log", max_bytes=100_000, patience_s=0))
        assert "answers with more than" in str(problem)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_redirect_is_followed_within_the_platform_alone(platform):
    other = State()
    elsewhere = Listener(Platform, other)
    elsewhere.start()
    platform.steps = [answer(302, Location="/new/jobs?x=1"), answer(200, b"{}")]
    run(platform, GET)
    assert platform.seen[-1][1:3] == ("/new/jobs?x=1", TOKEN)
    platform.steps = [answer(302, Location=f"{elsewhere.url}/jobs?secret")]
    problem = failure(platform, HttpRequest("GET", "/jobs", patience_s=0))
    assert f"Pai sends to {elsewhere.url} instead" in str(problem)
    platform.steps = [answer(307, Location="/jobs")]
    assert isinstance(failure(platform, POST), http.Outage)
    elsewhere.stop()
    assert other.seen == []


def test_a_circle_of_redirects_has_an_end(platform):
    platform.steps = [answer(302, Location="/jobs")] * 20
    assert "without an end" in str(failure(platform, HttpRequest("GET", "/jobs", patience_s=0)))


# secrets


def test_no_secret_is_in_an_error_or_a_log(platform, kept_log):
    secret = "pass word/42"
    config = Config(password=SecretText(secret))
    platform.steps = [answer(400, f"wrong: {secret}, pass%20word%2F42, {TOKEN}".encode(), "text/plain")]
    problem = failure(platform, HttpRequest("GET", "/jobs", {"password": secret}), config=config)
    logging.getLogger("plugin").warning("%s %r", secret, TOKEN)
    shown = f"{problem} {problem!r} {problem.reply} {problem.__cause__} {kept_log.text} {Credential(TOKEN)}"
    assert secret not in shown
    assert "word%2F42" not in shown
    assert "pass+word" not in shown
    assert TOKEN not in shown


def test_the_error_of_a_broken_connection_does_not_show_what_was_asked(platform):
    platform.server.stop()
    problem = failure(platform, HttpRequest("GET", "/jobs", {"password": "swordfish"}, patience_s=0))
    chain = [problem]
    while chain[-1].__cause__ or (chain[-1].__context__ and not chain[-1].__suppress_context__):
        chain.append(chain[-1].__cause__ or chain[-1].__context__)
    assert "swordfish" not in " ".join(map(str, chain))


@pytest.mark.parametrize(
    "address",
    [
        *("", "host", "ftp://host", "https://", "https://host?a=b", "https://me:pw@host"),
        *("http://[::1", "http://host:99999", "http://host:x", "http://host:0"),
    ],
)
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ConfigError) as raised:
        PlatformHttp("Pai", address, Config())
    assert "pw" not in str(raised.value)


# certificates


@pytest.fixture
def secure(platform, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl")
    pem, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", pem, "-days", "2"]
    name = ["-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *name], check=True, capture_output=True)
    platform.server.stop()
    platform.server.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    platform.server.tls.load_cert_chain(pem, key)
    platform.server.start()
    return platform, pem


@pytest.mark.process
def test_an_authority_of_ones_own_is_trusted_if_it_is_named(secure):
    platform, pem = secure
    assert run(platform, GET, config=Config(ca_cert=pem))[0].json() == {"ok": True}
    problem = failure(platform, HttpRequest("GET", "/jobs", patience_s=0))
    assert isinstance(problem, http.Untrusted)
    assert "name the authority that has signed it in caCert" in str(problem)
    assert len(platform.seen) == 1


@pytest.mark.process
def test_who_does_not_look_at_certificates_is_warned_once(secure, caplog, monkeypatch):
    platform, pem = secure
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(pem.with_name("key.pem")))
    assert run(platform, GET, GET, POST, config=Config(insecure_skip_tls_verify=True))
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "the identity of Pai" in warning.getMessage()


def test_where_a_service_opens_a_wrong_login_is_an_error_of_the_config(platform):
    platform.steps = [answer(401)]
    with pytest.raises(ConfigError, match="token: Pai answers 401") as raised:
        with http.as_config_error("token"):
            run(platform, GET)
    assert raised.value.place.field == "token"
    platform.server.stop()
    with pytest.raises(http.Outage), http.as_config_error("token"):
        run(platform, HttpRequest("GET", "/jobs", patience_s=0))
