"""A manager's callback in a thread: takes events by the rules of the real one, remembers all, and fails on demand.

Like the real one, it proves its identity to keepers, and accepts what they have signed, or the token as such.
"""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nnilite._keeper.proof import HEADER, digest
from nnilite._rest.callback_proofs import Proofs, SignedRequest
from nnilite.records import Json, MetricKind
from nnilite.testing.listener import Handler, Listener

_PREFIX = "/api/v1/callback/"
_CODE = "/api/v1/code/"


@dataclass
class Received:
    """What came of one job. Lists hold what was committed, so nothing is there twice unless it was reported twice."""

    token: str
    started: list[Json] = field(default_factory=list)
    reports: int = 0  # metrics and attributes
    attributes: dict[str, Json] = field(default_factory=dict)
    metrics: list[tuple[MetricKind, int, Json]] = field(default_factory=list)  # kind, sequence, value
    output: dict[str, bytes] = field(default_factory=lambda: {"stdout": b"", "stderr": b""})
    exits: list[Json] = field(default_factory=list)
    uses: list[Json] = field(default_factory=list)  # what the trial used, as it was reported now and then
    refused: int = 0  # batches with a wrong token
    requests: int = 0
    cancel: bool = False  # say so in each answer
    fenced: bool = False  # answer 410

    @property
    def values(self) -> list[Json]:
        """The values of all metrics, in the order of their reports."""
        return [value for _, _, value in self.metrics]

    def take(self, event: Json) -> bool:
        """Commit an event; False if one before it is missing."""
        kind = event["type"]
        if kind == "metric":
            if event["index"] == self.reports:
                value = json.loads(event["value"])
                self.metrics.append((MetricKind(event["kind"]), event["sequence"], value))
            return self._count_report(event["index"])
        if kind == "attribute":
            if event["index"] == self.reports:
                self.attributes[event["name"]] = json.loads(event["value"])
            return self._count_report(event["index"])
        if kind == "output":
            return self._take_output(event["stream"], event["offset"], base64.b64decode(event["data"]))
        if kind == "use":
            self.uses.append(event)
        else:
            seen = {"started": self.started, "exit": self.exits}[kind]
            if not seen:
                seen.append(event)
        return True

    def _count_report(self, index: int) -> bool:
        """Count a report; False if one before it is missing."""
        self.reports = max(self.reports, index + 1) if index <= self.reports else self.reports
        return index < self.reports

    def _take_output(self, stream: str, offset: int, data: bytes) -> bool:
        have = len(self.output.setdefault(stream, b""))
        if offset > have:
            return False
        self.output[stream] += data[have - offset :]
        return True


class Receiver:
    """Listens on a loopback port, or at `host`, from `start` to `stop`; may be started again on the same port."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.jobs: dict[str, Received] = {}
        self.packages: dict[str, Path] = {}  # code packages to hand out, by hash
        self.lose_answers = 0  # take this many requests, and break the connection in place of an answer
        self.break_requests = 0  # break so many connections before anything is taken
        self.proofs = Proofs()
        self._lock = threading.Lock()
        self._listener = Listener(_ReceiverHandler, self, host)

    @property
    def url(self) -> str:
        """The base URL for keepers on this machine."""
        return self._listener.url

    def expect(self, job: str, token: str) -> Received:
        """Accept events of a job from now on."""
        return self.jobs.setdefault(job, Received(token))

    def start(self, port: int | None = None) -> None:
        """Listen, on the same port as before if there was one, or on this one; 0 is any that is free."""
        self._listener.start(port)

    def stop(self) -> None:
        """Stop listening and break all connections, as a manager does that is killed."""
        self._listener.stop()

    def post(
        self, job: str, path: str, authorization: str, body: bytes
    ) -> tuple[int, Json, SignedRequest | None] | None:
        """Return the answer to a batch, and what it has to be proven by; None: break the connection."""
        with self._lock:
            received = self.jobs.get(job)
            if self.break_requests:
                self.break_requests -= 1
                return None
            if received is None:
                return 404, {"error": f"there is no job {job}"}, None
            received.requests += 1
            signed = self.proofs.read(authorization, received.token, "POST", path)
            known = self.proofs.accept(job, signed, body) if signed else authorization == f"Bearer {received.token}"
            if not known:
                received.refused += 1
                return 401, {"error": "wrong token"}, None
            if received.fenced:
                return 410, {"reason": "fenced"}, signed
            status = 200 if all(received.take(event) for event in json.loads(body)["events"]) else 409
            if self.lose_answers:
                self.lose_answers -= 1
                return None
            return status, self._cursors(received), signed

    def is_known(self, job: str, path: str, authorization: str) -> bool:
        """Return whether the head of a batch has the proof of a job that is expected."""
        received = self.jobs.get(job)
        if received is None:
            return False
        signed = self.proofs.read(authorization, received.token, "POST", path)
        return signed is not None or authorization == f"Bearer {received.token}"

    @staticmethod
    def _cursors(received: Received) -> Json:
        output = {stream: len(data) for stream, data in received.output.items()}
        return {"cancel": received.cancel, "metrics": received.reports, "output": output}

    def meet(self, job: str, nonce: str) -> Json:
        """Return our proof for the keeper of a job; None for a job that is not expected."""
        received = self.jobs.get(job)
        if received is None:
            return None
        received.requests += 1
        return self.proofs.meet(received.token, nonce)

    def package(self, path: str, authorization: str) -> tuple[bytes, SignedRequest | None] | None:
        """Return the archive of that path's hash, for any job's token."""
        name = path.removeprefix(_CODE)
        for received in self.jobs.values():
            signed = self.proofs.read(authorization, received.token, "GET", path)
            if (signed or authorization == f"Bearer {received.token}") and name in self.packages:
                return self.packages[name].read_bytes(), signed
        return None


class _ReceiverHandler(Handler):
    owner: Receiver

    def handle_expect_100(self) -> bool:
        """Ask for the body of a request whose head proves its job, as a manager does, and refuse others at once."""
        if self.owner.is_known(self.path.removeprefix(_PREFIX), self.path, self.authorization()):
            return super().handle_expect_100()
        self.close_connection = True
        self._answer(401, "application/json", b'{"error": "wrong token"}', None)
        return False

    def do_POST(self) -> None:
        job = self.path.removeprefix(_PREFIX)
        answer = self.owner.post(job, self.path, self.authorization(), self.body())
        if answer is None:
            self.close_connection = True
            return
        status, content, signed = answer
        self._answer(status, "application/json", json.dumps(content).encode(), signed)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path.endswith("/proof"):
            job = parts.path.removeprefix(_PREFIX).removesuffix("/proof")
            found = self.owner.meet(job, parse_qs(parts.query)["nonce"][0])
            self._answer(200 if found else 404, "application/json", json.dumps(found).encode(), None)
            return
        package = self.owner.package(self.path, self.authorization())
        if package is None:
            self._answer(404, "application/json", b'{"error": "there is no such package"}', None)
            return
        self._answer(200, "application/gzip", package[0], package[1])

    def _answer(self, status: int, kind: str, data: bytes, signed: SignedRequest | None) -> None:
        proof: dict[str, Any] = {HEADER: signed.proof(status, digest(data))} if signed else {}
        self.send(status, kind, data, **proof)
