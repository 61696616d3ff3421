"""The way in to Azure: a proxy that has the certificates of its hosts, as a company's proxy may have.

Azure's clients find it by HTTPS_PROXY and REQUESTS_CA_BUNDLE, and know nothing else of it: hosts have their own names.
What Azure does not have fails the test, and is not answered quietly by a 404.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from openapi_core.testing import MockRequest

from nnilite.testing.listener import Handler, Listener
from platforms.aml.azurite import ACCOUNT, Azurite
from platforms.aml.contract import AzureContract
from platforms.aml.login import Entra
from platforms.aml.refusal import AzureRefusal
from platforms.aml.workspace import REGION_HOST, StandInWorkspace

ARM_HOST = "management.azure.com"
LOGIN_HOST = "login.microsoftonline.com"
BLOB_HOST = f"{ACCOUNT}.blob.core.windows.net"
_HOP_BY_HOP = ("host", "connection", "content-length", "transfer-encoding", "keep-alive")

Answer = tuple[int, Mapping[str, str], bytes]


@dataclass
class AzureMisbehavior:
    """How the next calls are answered instead: `times` of those whose method, host and path contain `what`."""

    what: str
    times: int
    status: int = 0  # 0: the connection is cut
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"error": {"code": "ServiceUnavailable", "message": "the service is away"}}'
    after: bool = False  # only after it has been done
    delay_s: float = 0.0


class StandInCloud:
    """Use as a context manager: in the end nothing outside of the contract may have come."""

    def __init__(self, folder: Path, azurite: Azurite, contract: AzureContract) -> None:
        self.folder = folder
        self.login = Entra()
        self.workspace = StandInWorkspace(folder, azurite)
        self.seen: list[str] = []
        self.faults: list[str] = []
        self.misbehavior: list[AzureMisbehavior] = []
        self._azurite, self._contract = azurite, contract
        self._listener = Listener(_ProxyHandler, self)
        self._lock = threading.Lock()
        self._away = False
        self.tls, self.authority = certificates(folder)

    def __enter__(self) -> StandInCloud:
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.workspace.close()
        self._listener.stop()
        assert not self.faults, self.faults

    @property
    def environment(self) -> Mapping[str, str]:
        """By which Azure's clients come here."""
        proxy = self._listener.url
        return {"HTTPS_PROXY": proxy, "REQUESTS_CA_BUNDLE": str(self.authority), "NO_PROXY": "127.0.0.1"}

    def misbehave(self, what: str, times: int = 1, **how: object) -> None:
        self.misbehavior.append(AzureMisbehavior(what, times, **how))  # type: ignore[arg-type]

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Nothing of Azure answers; jobs go on."""
        self._away = True
        try:
            yield
        finally:
            self._away = False

    # ------------------------------------------------------------ one request

    def answer(self, host: str, handler: Handler) -> Answer | None:
        """None: the connection is cut."""
        body = handler.body()
        line = f"{handler.command} {host}{handler.path}"
        # A thread of an earlier test may still upload: the environment of this process leads it here.
        if host != BLOB_HOST or handler.path.split("/")[1] in self.workspace.containers:
            self.seen.append(line)
        if self._away:
            return None
        due = self._due(line, after=False)
        if due is None:
            found = self._done(host, handler, body)
            due = self._due(line, after=True)
            if due is None:
                return found
        threading.Event().wait(due.delay_s)  # Azure is slow; no test waits here
        return (due.status, {"Content-Type": "application/json", **due.headers}, due.body) if due.status else None

    def _due(self, line: str, after: bool) -> AzureMisbehavior | None:
        with self._lock:
            for one in self.misbehavior:
                if one.times and one.what in line and one.after == after:
                    one.times -= 1
                    return one
        return None

    def _done(self, host: str, handler: Handler, body: bytes) -> Answer:
        if host == BLOB_HOST:
            headers = {name: value for name, value in handler.headers.items() if name.lower() not in _HOP_BY_HOP}
            return self._azurite.forward(handler.command, handler.path, headers, body)
        url = urlsplit(handler.path)
        if host == LOGIN_HOST:
            return self._by_json(lambda: (200, {}, self.login.answer(handler.command, url.path, body)))
        if host not in (ARM_HOST, REGION_HOST):
            return self._fault(f"nothing is to be asked of {host}: {handler.command} {url.path}")
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        if url.path == "/discovery":
            return self._by_json(lambda: (200, {}, self.workspace.discovery()))
        status, more, content = self._by_json(lambda: self._admitted(handler, url.path, query, body))
        content_type = handler.headers.get("Content-Type") or "application/json"
        asked = MockRequest(
            f"https://{host}",
            handler.command.lower(),
            url.path,
            args=query,
            headers=dict(handler.headers.items()),
            data=body or None,
            content_type=content_type.partition(";")[0],
        )
        self.faults += self._contract.check(asked, status, content)
        return status, more, content

    def _admitted(self, handler: Handler, path: str, query: Mapping[str, str], body: bytes) -> tuple[int, dict, object]:
        self.login.admit(handler.token())
        return self.workspace.answer(handler.command, path, query, json.loads(body) if body else None)

    @staticmethod
    def _by_json(work: Callable[[], tuple[int, dict[str, str], object]]) -> Answer:
        try:
            status, headers, content = work()
        except AzureRefusal as error:
            status, headers, content = error.status, {}, error.content
        text = b"" if content is None else json.dumps(content).encode()
        return status, {"Content-Type": "application/json", **headers}, text

    def _fault(self, text: str) -> Answer:
        self.faults.append(text)
        return 400, {"Content-Type": "application/json"}, json.dumps({"error": {"code": "x", "message": text}}).encode()


class _ProxyHandler(Handler):
    owner: StandInCloud
    host = ""

    def do_CONNECT(self) -> None:
        self.host = self.path.partition(":")[0]
        self.send_response_only(200, "Connection established")
        self.end_headers()
        self.wfile.flush()
        self.connection = self.owner.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", 0)
        self.close_connection = False

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # the server closes only what it has accepted itself

    def _answer(self) -> None:
        found = self.owner.answer(self.host, self)
        if found is None:
            self.close_connection = True
            return
        status, headers, data = found
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        length = {name.lower(): value for name, value in headers.items()}.get("content-length")
        is_head = self.command == "HEAD"
        self.send_header("Content-Length", length if is_head and length else str(len(data)))
        self.end_headers()
        if not is_head:
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_PATCH = _answer


def certificates(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """For Azure's hosts, signed by an authority of the test alone; and the file of that authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "stand-in for Azure")])
    hosts = [x509.DNSName(host) for host in (ARM_HOST, LOGIN_HOST, REGION_HOST, BLOB_HOST)]
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    certificate, private = folder / "azure.pem", folder / "azure.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    formats = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    private.write_bytes(key.private_bytes(*formats))
    private.chmod(0o600)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    return context, certificate
