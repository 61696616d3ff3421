"""What keepers sign: taken once, by this manager only, as it was signed; and every answer to it is proven."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from manager.fake_backend import filled
from manager.rest_server import Client, Reply, serving
from nnilite._keeper import build
from nnilite._keeper.proof import HEADER, ProofSession, digest
from nnilite._rest import ServerOptions, callback_proofs, files
from nnilite._rest.callback_proofs import Proofs
from nnilite._rest.file_digests import FileDigests
from nnilite.errors import ServiceError
from nnilite.records import TrialState
from waiting import others_turn

JOB = "nni-exp12345-Run01-0"
CALLBACK = f"/api/v1/callback/{JOB}"
METRIC = {"type": "metric", "index": 0, "kind": "PERIODICAL", "sequence": 0, "value": "0.5", "time": 1.0}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path)) as client:
        yield client


def session_with(client: Client, job: str = JOB) -> ProofSession:
    session = ProofSession(client.backend.callback_token(job))
    reply = client.get(f"/callback/{job}/proof?nonce={session.nonce}", Authorization="")
    assert session.meet(reply.json)
    return session


def body_of(*events: Any) -> bytes:
    return json.dumps({"events": events}).encode()


def post(client: Client, session: ProofSession, body: bytes, authorization: str = "", path: str = CALLBACK) -> Reply:
    authorization = authorization or session.authorization("POST", path, body)
    return client.ask("POST", path, body, Authorization=authorization)


def proven(session: ProofSession, reply: Reply) -> bool:
    return session.proves(reply.headers[HEADER], reply.status, digest(reply.body))


def test_a_signed_batch_is_taken_and_its_answer_proven(client: Client) -> None:
    session = session_with(client)
    for index in range(3):
        reply = post(client, session, body_of({**METRIC, "index": index}))
        assert (reply.status, reply.json["metrics"], proven(session, reply)) == (200, index + 1, True)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (body_of({**METRIC, "index": 7}), 409), (b"[1, 2]", 400), (b" " * (8 * 2**20 + 1), 413)],
)
def test_a_refusal_is_proven_too(client: Client, body: bytes, status: int) -> None:
    session = session_with(client)
    reply = post(client, session, body)
    assert (reply.status, proven(session, reply)) == (status, True)


def test_that_an_attempt_is_fenced_is_proven(client: Client) -> None:
    client.backend.fenced.add(JOB)
    session = session_with(client)
    reply = post(client, session, body_of())
    assert (reply.status, proven(session, reply)) == (410, True)


@pytest.mark.parametrize("body", [body_of(METRIC), body_of()], ids=["metric", "heartbeat"])
def test_a_batch_that_is_sent_again_is_refused(client: Client, body: bytes) -> None:
    session = session_with(client)
    authorization = session.authorization("POST", CALLBACK, body)
    assert post(client, session, body, authorization).status == 200
    revision = client.backend.revision
    again = post(client, session, body, authorization)
    assert (again.status, HEADER in again.headers, client.backend.revision) == (401, True, revision)


def test_a_batch_of_an_earlier_session_is_refused_once_a_later_one_has_spoken(client: Client) -> None:
    earlier, later = session_with(client), session_with(client)
    assert post(client, later, body_of()).status == 200
    assert post(client, earlier, body_of(METRIC)).status == 401
    assert post(client, later, body_of()).status == 200


def test_what_was_signed_for_an_earlier_manager_is_refused(client: Client, tmp_path: Path) -> None:
    session = session_with(client)
    (tmp_path / "again").mkdir()
    with serving(filled(tmp_path / "again")) as restarted:
        reply = post(restarted, session, body_of(METRIC))
    assert (reply.status, HEADER in reply.headers) == (401, False)


def test_another_body_than_the_signed_one_is_refused(client: Client) -> None:
    session = session_with(client)
    authorization = session.authorization("POST", CALLBACK, body_of())
    assert post(client, session, body_of(METRIC), authorization).status == 401
    assert client.backend.revision == 2


def test_what_is_signed_for_one_address_opens_no_other(client: Client) -> None:
    session = session_with(client)
    for method, path in (("GET", CALLBACK), ("POST", CALLBACK + "x"), ("POST", CALLBACK + "?x=1")):
        authorization = session.authorization(method, path, body_of())
        assert post(client, session, body_of(), authorization).status == 401
    for path in ("/experiment", "/trials", "/keeper.pyz"):
        assert client.get(path, Authorization=session.authorization("GET", f"/api/v1{path}")).status == 401


def test_the_signature_of_another_job_is_refused(client: Client) -> None:
    session = session_with(client, "nni-exp12345-End02-0")
    assert post(client, session, body_of(METRIC)).status == 401


@pytest.mark.parametrize("place", range(5))
def test_a_signature_with_any_part_changed_is_refused(client: Client, place: int) -> None:
    session = session_with(client)
    scheme, _, given = session.authorization("POST", CALLBACK, body_of()).partition(" ")
    parts = given.split(":")
    parts[place] = re.sub(r"[0-9a-f]$", lambda found: "2" if found[0] == "3" else "3", parts[place])
    assert post(client, session, body_of(), f"{scheme} {':'.join(parts)}").status == 401
    assert post(client, session, body_of()).status == 200


def test_the_proof_of_another_experiments_manager_convinces_nobody(client: Client) -> None:
    session = ProofSession("the token of a job of another experiment")
    reply = client.get(f"/callback/{JOB}/proof?nonce={session.nonce}", Authorization="")
    assert not session.meet(reply.json)


def test_asking_for_a_proof_is_no_sign_of_life(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []

    async def events(*arguments: Any) -> None:
        heard.append(arguments)

    monkeypatch.setattr(client.backend, "events", events)
    session_with(client)
    assert heard == []


@pytest.mark.parametrize(("path", "content"), [("/keeper.pyz", b"keeper"), (f"/code/{'a' * 64}", b"packed")])
def test_keeper_and_code_are_proven_to_who_signs_for_them(client: Client, path: str, content: bytes) -> None:
    session = session_with(client)
    reply = client.get(path, Authorization=session.authorization("GET", f"/api/v1{path}"), X_Nnilite_Job=JOB)
    assert (reply.body, proven(session, reply)) == (content, True)


SENDS_ITS_TOKEN = """
def _send(self, method, path, body):
    headers = {"Authorization": "Bearer " + self._spec.token, "X-Nnilite-Job": self._spec.job}
    connection = self._connect()
    connection.request(method, path, body, dict(headers, **{"Content-Type": "application/json"}))
    return connection.getresponse()
RestLink._send, RestLink._meet, ProofSession.proves = _send, lambda *_: None, lambda *_: True
"""


@pytest.mark.process
def test_a_keeper_of_an_earlier_version_still_delivers(client: Client, tmp_path: Path) -> None:
    keeper, spec = build(tmp_path / "keeper.pyz"), tmp_path / "spec.json"
    with ZipFile(keeper) as built, ZipFile(tmp_path / "old.pyz", "w") as old:
        for name in built.namelist():
            more = SENDS_ITS_TOKEN if name == "nnilite/_keeper/link.py" else ""
            old.writestr(name, built.read(name) + more.encode())
    about = {"job": JOB, "experiment": "exp12345", "trial": "Run01", "directory": str(tmp_path / "attempt")}
    about |= {"token": client.backend.callback_token(JOB), "callback": f"http://127.0.0.1:{client.port}"}
    spec.write_text(json.dumps({**about, "command": 'echo "final 0.5" >> "$NNILITE_METRICS"'}))
    subprocess.run([sys.executable, "-I", str(tmp_path / "old.pyz"), "run", str(spec)], check=True, timeout=60)
    assert [metric.value for metric in client.backend.reported if metric.trial == "Run01"] == [0.5]
    assert client.backend.kept["Run01"].state is TrialState.SUCCEEDED


def test_behind_a_prefix_the_address_is_signed_without_it(tmp_path: Path) -> None:
    with serving(filled(tmp_path), ServerOptions(url_prefix="/nni/abc")) as client:
        session = ProofSession(client.backend.callback_token(JOB))
        address = f"/nni/abc{CALLBACK}"
        assert session.meet(client.ask("GET", f"{address}/proof?nonce={session.nonce}", Authorization="").json)
        authorization = session.authorization("POST", CALLBACK, body_of())
        assert client.ask("POST", address, body_of(), Authorization=authorization).status == 200


def test_who_was_forgotten_has_to_begin_a_new_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_proofs, "JOBS_MAX", 2)
    proofs = Proofs()
    sessions = {job: meeting(proofs, job) for job in ("a", "b", "c")}
    assert [taken(proofs, job, sessions[job]) for job in ("a", "b", "c")] == [True, True, True]
    assert not taken(proofs, "a", sessions["a"])
    assert taken(proofs, "a", meeting(proofs, "a"))
    assert taken(proofs, "c", sessions["c"])


def meeting(proofs: Proofs, job: str) -> ProofSession:
    session = ProofSession(job)
    assert session.meet(proofs.meet(job, session.nonce))
    return session


def taken(proofs: Proofs, job: str, session: ProofSession) -> bool:
    signed = proofs.read(session.authorization("POST", "/x", b""), job, "POST", "/x")
    assert signed is not None
    return proofs.accept(job, signed, b"")


def test_a_trial_that_requests_its_code_again_and_again_has_its_digest_made_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, hashed = [], files._hash_piece
    monkeypatch.setattr(files, "_hash_piece", lambda *given: made.append(given) or hashed(*given))
    session, path = session_with(client), f"/api/v1/code/{'a' * 64}"
    for _ in range(3):
        reply = client.ask("GET", path, Authorization=session.authorization("GET", path), X_Nnilite_Job=JOB)
        assert (reply.body, proven(session, reply)) == (b"packed", True)
    assert len(made) == 1


async def test_a_digest_is_made_once_for_all_who_wait_and_again_after_an_error(tmp_path: Path) -> None:
    digests, tries = FileDigests(), 0

    async def make() -> str:
        nonlocal tries
        tries += 1
        await others_turn()
        if tries == 1:
            raise ServiceError("the folder cannot be read now")
        return f"digest {tries}"

    (tmp_path / "file").write_bytes(b"1")
    for content, known in ((b"1", "digest 2"), (b"22", "digest 3")):
        (tmp_path / "file").write_bytes(content)
        with (tmp_path / "file").open("rb") as file:
            if tries == 0:
                with pytest.raises(ServiceError):
                    await digests.find(file, make)
            assert await asyncio.gather(*(digests.find(file, make) for _ in range(3))) == [known] * 3
