"""How a browser signs in, and what its page signs: neither the link nor the key is ever sent."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._keeper.proof import HEADER, code, digest
from nnilite._rest import page_proofs
from nnilite._rest.page_proofs import COUNT_MAX, EXCHANGES_MAX, LIFE_S, PageProofs
from nnilite._rest.sign_in import (
    LINK_LIFE_S,
    LINKS_MAX,
    SESSION_IDLE_S,
    SESSION_LIFE_S,
    SESSIONS_MAX,
    TICKETS_MAX,
    SignIn,
    name_secret,
)
from page_session import PageSession, trade

TOKEN = "manager-token-1234"
NONCE = "ab" * 16


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path, TOKEN)) as client:
        yield client


def link_of(client: Client) -> str:
    path: str = client.post("/sign-in-links", {}).json["path"]
    return path.removeprefix("/#key=")


@pytest.fixture
def page(client: Client) -> PageSession:
    return PageSession(client.ask, link_of(client))


def traded(client: Client, link: str, **changed: str) -> int:
    return client.post("/sessions", trade(link, **changed)[0], Authorization="").status


def test_a_link_is_traded_once_and_each_request_is_signed_and_each_answer_proven(client: Client) -> None:
    link = link_of(client)
    page = PageSession(client.ask, link)
    assert [page.get("/experiment").status for _ in range(3)] == [200, 200, 200]
    again = client.post("/sessions", trade(link)[0], Authorization="")
    assert (again.status, "used already" in again.json["error"]) == (401, True)


def test_of_many_browsers_that_use_a_link_at_once_one_gets_in(client: Client) -> None:
    link = link_of(client)
    with ThreadPoolExecutor(16) as browsers:
        found = sorted(browsers.map(lambda _: traded(client, link), range(16)))
    assert found == [201] + [401] * 15


def test_the_token_of_another_experiment_makes_no_link(client: Client) -> None:
    assert client.post("/sign-in-links", {}, Authorization="Bearer another-token-1234").status == 401


@pytest.mark.parametrize("link", ["", "x", "\u00e9", "x" * 10_000])
def test_a_link_that_nobody_made_is_traded_for_nothing(client: Client, link: str) -> None:
    assert traded(client, link) == 401


def test_who_has_heard_a_links_name_neither_trades_it_nor_uses_it_up(client: Client) -> None:
    link = link_of(client)
    assert traded(client, link, proof="0" * 64) == 401
    assert traded(client, link, proof="\udc80") == 401
    assert traded(client, link, nonce=NONCE) == 401, "the proof is for another nonce"
    assert traded(client, link, nonce="not hex") == 400
    assert traded(client, link) == 201


def test_neither_names_nor_keys_open_anything_by_themselves(client: Client, page: PageSession) -> None:
    for value in (page.name, page.key):
        assert client.get("/experiment", Authorization="", X_Nnilite_Session=value).status == 401
        assert client.get("/experiment", Authorization=f"Bearer {value}").status == 401
        for name in ("nnilite-exp12345", "nnilite-session", "X-Nnilite-Session"):
            assert client.get("/experiment", Authorization="", Cookie=f"{name}={value}").status == 401
        for name in ("key", "ticket"):
            assert client.get(f"/experiment?{name}={value}", Authorization="").status == 401


def test_a_signed_request_is_taken_once_and_only_as_it_was_signed(client: Client, page: PageSession) -> None:
    def sent(method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> int:
        return client.ask(method, f"/api/v1{path}", body, Origin=f"http://127.0.0.1:{client.port}", **headers).status

    reading = page.headers("GET", "/trials?limit=3")
    assert sent("GET", "/trials?limit=4", reading) == 401
    assert sent("GET", "/trials?limit=3", reading) == 200
    assert sent("GET", "/trials?limit=3", reading) == 401
    stopping = page.headers("POST", "/experiment/stop", b"{}")
    assert sent("POST", "/experiment/resume", stopping, b"{}") == 401
    assert sent("POST", "/experiment/stop", stopping, b"{}") == 202
    client.backend.stopped = False
    assert sent("POST", "/experiment/stop", stopping, b"{}") == 401
    assert client.backend.stopped is False


def test_a_body_that_was_changed_on_the_way_changes_nothing(client: Client, page: PageSession) -> None:
    headers = page.headers("PATCH", "/experiment", b'{"maxTrialNumber": 3}')
    origin = f"http://127.0.0.1:{client.port}"
    reply = client.ask("PATCH", "/api/v1/experiment", b'{"maxTrialNumber": 4}', Origin=origin, **headers)
    assert (reply.status, "as it was signed" in reply.json["error"]) == (401, True)


def test_requests_of_a_page_need_not_come_in_their_order(client: Client, page: PageSession) -> None:
    signed = [page.headers("GET", "/experiment") for _ in range(5)]
    assert [client.get("/experiment", **headers).status for headers in reversed(signed)] == [200] * 5


def test_refusals_pieces_files_and_rows_are_proven_too(client: Client, page: PageSession) -> None:
    assert page.get("/nothing").status == 404
    assert page.get("/trials?limit=x").status == 400
    assert page.get("/trials/End02/output/stdout").status == 200
    assert page.get("/trials/End02/files/trial.stdout").status == 200
    assert page.get("/logs/manager").status == 200
    headers = page.headers("GET", "/rows/trials")
    reply = client.get("/rows/trials", Accept_Encoding="gzip", **headers)
    body = gzip.decompress(reply.body) if reply.headers["Content-Encoding"] == "gzip" else reply.body
    assert page.proofs.proves(reply.headers[HEADER], reply.status, digest(body))


def test_a_signed_in_browser_must_say_its_origin_to_change_anything(client: Client, page: PageSession) -> None:
    own = f"http://127.0.0.1:{client.port}"
    for origin, status in (("", 403), ("http://evil.example", 403), ("http://127.0.0.1:1", 403), (own, 202)):
        headers = page.headers("POST", "/experiment/stop", b"{}")
        assert client.post("/experiment/stop", b"{}", Origin=origin, **headers).status == status


def test_what_opens_one_start_of_the_server_opens_no_other(client: Client, page: PageSession, tmp_path: Path) -> None:
    """Manager and token are the same, as after a resume."""
    link, headers = link_of(client), page.headers("GET", "/experiment")
    with serving(filled(tmp_path / "again", TOKEN)) as again:
        assert again.get("/experiment", **headers).status == 401
        assert traded(again, link) == 401
        assert again.get(f"/sessions/{page.name}/proof?nonce={NONCE}", Authorization="").status == 401


def test_a_session_ends_by_signing_out(client: Client, page: PageSession) -> None:
    reply = page.post("/sign-out", Origin=f"http://127.0.0.1:{client.port}")
    assert reply.json == {"signedOut": True}
    assert (page.get("/experiment").status, page.meet()) == (401, 401)


def test_a_page_opens_no_callback(client: Client, page: PageSession) -> None:
    headers = page.headers("POST", "/callback/x", b'{"events": []}')
    assert client.post("/callback/x", b'{"events": []}', **headers).status == 401


# ------------------------------------------------------------ what is kept


class Signer:
    """A page that speaks to `PageProofs` without a server."""

    def __init__(self, proofs: PageProofs) -> None:
        self._proofs = proofs
        self.theirs = proofs.meet("key", NONCE)["nonce"]

    def taken(self, count: int) -> bool:
        content = digest(b"")
        made = code("key", "request", NONCE, self.theirs, count, "GET", "/api/v1/x", content)
        given = f"Nnilite {NONCE}:{self.theirs}:{count}:{content}:{made}"
        return self._proofs.read(given, "key", "GET", "/api/v1/x") is not None


def test_a_signature_is_taken_for_a_short_time() -> None:
    now = [1000.0]
    proofs = PageProofs(lambda: now[0])
    early, late = Signer(proofs), Signer(proofs)
    assert early.theirs != late.theirs
    now[0] += LIFE_S
    assert (early.taken(1), early.taken(1)) == (True, False)
    now[0] += 0.1
    assert not late.taken(1)


def test_counts_beyond_the_most_are_refused() -> None:
    page = Signer(PageProofs(lambda: 1000.0))
    assert [page.taken(count) for count in (COUNT_MAX - 1, COUNT_MAX)] == [True, False]


def test_what_is_forgotten_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_proofs, "EXCHANGES_MAX", 3)
    proofs = PageProofs(lambda: 1000.0)
    unused, *pages = [Signer(proofs) for _ in range(5)]
    assert all(page.taken(1) for page in pages)
    assert [page.taken(1) for page in pages] == [False] * 4, "the first is forgotten, and no request of it is taken"
    assert [page.taken(2) for page in (unused, *pages)] == [False, False, True, True, True]


def test_strangers_who_ask_for_a_proof_take_no_memory() -> None:
    proofs = PageProofs(lambda: 1000.0)
    page = Signer(proofs)
    assert page.taken(1)
    for _ in range(2 * EXCHANGES_MAX):
        Signer(proofs)
    assert (page.taken(1), page.taken(2)) == (False, True)
    assert len(proofs._taken) == 1


def session_of(sign_in: SignIn) -> str:
    """The name of a new session."""
    link = sign_in.link()
    answer = sign_in.trade(name_secret(link), NONCE, code(link, "link", NONCE), needs_key=True)
    assert answer is not None
    return name_secret(code(link, "session", NONCE, answer["nonce"]))


def used(sign_in: SignIn, name: str) -> bool:
    """Whether there is a session of this name, which is used."""
    found = sign_in._sessions.key(name) is not None
    if found:
        sign_in._sessions.note_use(name)
    return found


def uses_up(sign_in: SignIn, link: str) -> bool:
    return sign_in.trade(name_secret(link), NONCE, code(link, "link", NONCE), needs_key=False) is not None


def test_links_tickets_and_sessions_end() -> None:
    now = [1000.0]
    sign_in = SignIn(lambda: now[0])
    link, ticket = sign_in.link(), sign_in.ticket("/x")
    name, unused = session_of(sign_in), session_of(sign_in)
    now[0] += LINK_LIFE_S + 1
    assert (uses_up(sign_in, link), sign_in.admits(ticket, "/x")) == (False, False)
    while now[0] + SESSION_IDLE_S < 1000.0 + SESSION_LIFE_S:
        assert used(sign_in, name)
        now[0] += SESSION_IDLE_S - 1
    assert sign_in.meet(unused, NONCE) is None
    now[0] = 1001.0 + SESSION_LIFE_S
    assert sign_in.meet(name, NONCE) is None


def test_who_asks_for_proofs_only_keeps_no_session_alive() -> None:
    now = [1000.0]
    sign_in = SignIn(lambda: now[0])
    name = session_of(sign_in)
    now[0] += SESSION_IDLE_S - 1
    assert sign_in.meet(name, NONCE)
    now[0] += 2
    assert sign_in.meet(name, NONCE) is None


def test_links_tickets_and_sessions_do_not_pile_up() -> None:
    sign_in = SignIn()
    links = [sign_in.link() for _ in range(LINKS_MAX + 1)]
    assert [uses_up(sign_in, links[0]), uses_up(sign_in, links[-1])] == [False, True]
    tickets = [sign_in.ticket("/") for _ in range(TICKETS_MAX + 1)]
    assert [sign_in.admits(tickets[0], "/"), sign_in.admits(tickets[-1], "/")] == [False, True]
    first, forgotten = session_of(sign_in), session_of(sign_in)
    names = [session_of(sign_in) for _ in range(SESSIONS_MAX - 2)]
    assert used(sign_in, first)
    session_of(sign_in)
    assert [used(sign_in, name) for name in (first, forgotten, names[0])] == [True, False, True]
