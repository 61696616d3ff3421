"""The way to the manager: its REST callback over one kept connection.

After the manager's death any user of its machine can listen at its port. So before the other end has proven that it
is the manager (see `proof`), nothing of the trial is sent over a connection, and no answer by it is believed.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import IO, TYPE_CHECKING, Any, Dict, List, Optional, Tuple
from urllib.parse import quote, urlsplit

from .outbox import ManagerAnswer
from .proof import HEADER, ProofSession, digest
from .spec import Spec

if TYPE_CHECKING:
    import http.client

MARK = "NNILITE_EVENT "
_API = "/api/v1"
_TIMEOUT_S = 30.0
_MAX_ANSWER_BYTES = 1_000_000
_MAX_PROOF_BYTES = 4096
_CHUNK_BYTES = 1 << 20
_PARTIAL_CHAIN = 0x80000  # VERIFY_X509_PARTIAL_CHAIN, which has a name from Python 3.10 on


class LinkDown(Exception):
    """The manager cannot be reached now, or another program answers at its address."""


class Unproven(ValueError):
    """The other end has not proven that it is the manager of this trial."""


class RestLink:
    """HTTP(S) to the manager. Its address is read again for every new connection, as it may have moved."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._connection: Optional[http.client.HTTPConnection] = None
        self._session = ProofSession(spec.token)  # belongs to the current connection
        self._address = ""

    def post(self, events: List[Dict[str, Any]]) -> ManagerAnswer:
        """Deliver a batch. Raises: LinkDown."""
        body = json.dumps({"events": events}, separators=(",", ":")).encode("ascii")
        status, content = self._exchange("POST", self._make_callback_path(), body)
        return read_answer(status, _parsed(content))

    def prepare(self) -> None:
        """Connect, so that the next request is faster. Raises: LinkDown."""
        try:
            self._connect()
        except _list_network_errors() as error:
            raise LinkDown(_sentence(error)) from error

    def download(self, name: str, target: IO[bytes]) -> None:
        """Fetch a code package. Raises: LinkDown, OSError if it cannot be written."""
        path = _API + "/code/" + quote(name, safe="")
        try:
            try:
                response = self._send("GET", path, None)
            except _list_network_errors() as error:
                raise LinkDown(_sentence(error)) from error
            if response.status != 200:
                raise LinkDown("the manager answers {} to {}".format(response.status, path))
            if not self._session.proves(response.getheader(HEADER), 200, self._copy(response, target)):
                raise LinkDown("what came from the manager's address is not what the manager has sent")
        finally:
            self.close()

    def _read_current_address(self) -> str:
        """Return the manager's base URL as it is now; "" if none is known."""
        if self._spec.callback_file:
            try:
                with open(self._spec.callback_file, encoding="utf-8") as file:
                    return file.read().strip() or self._spec.callback or ""
            except (OSError, UnicodeDecodeError):
                return self._spec.callback or ""
        return self._spec.callback or ""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, method: str, path: str, body: bytes) -> Tuple[int, bytes]:
        """Make one request, with a second try at once if a kept connection turns out to be dead."""
        kept = self._connection is not None
        try:
            return self._request(method, path, body)
        except _list_network_errors() as error:
            self.close()
            if not kept or isinstance(error, socket.timeout):
                raise LinkDown(_sentence(error)) from error
        try:
            return self._request(method, path, body)
        except _list_network_errors() as error:
            self.close()
            raise LinkDown(_sentence(error)) from error

    def _request(self, method: str, path: str, body: bytes) -> Tuple[int, bytes]:
        response = self._send(method, path, body)
        content = response.read(_MAX_ANSWER_BYTES)
        if not self._session.proves(response.getheader(HEADER), response.status, digest(content)):
            raise Unproven("the manager's address answers {} without the manager's proof".format(response.status))
        if response.status >= 400 or response.will_close:
            self.close()
        return response.status, content

    def _send(self, method: str, path: str, body: Optional[bytes]) -> http.client.HTTPResponse:
        """Send a request and get its answer. Raises: one of the network's errors, Unproven among them."""
        connection = self._connect()
        headers = {
            "Authorization": self._session.authorization(method, path, body or b""),
            "Content-Type": "application/json",
            "X-Nnilite-Job": self._spec.job,  # the token's job, which the path of a download does not name
        }
        connection.request(method, self._find_base_path() + path, body, headers)
        return connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        """Return a connection whose other end has proven to be the manager."""
        address = self._read_current_address()
        if self._connection is not None and address == self._address:
            return self._connection
        self.close()
        self._address = address
        self._connection = self._make_connection()
        try:
            self._meet(self._connection)
        except BaseException:
            self.close()
            raise
        return self._connection

    def _make_connection(self) -> http.client.HTTPConnection:
        import http.client

        url = urlsplit(self._address)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("there is no usable address of the manager: {!r}".format(self._address))
        if url.scheme == "https":
            return http.client.HTTPSConnection(
                url.hostname, url.port, timeout=_TIMEOUT_S, context=self._make_tls_settings()
            )
        return http.client.HTTPConnection(url.hostname, url.port, timeout=_TIMEOUT_S)

    def _meet(self, connection: http.client.HTTPConnection) -> None:
        """Let the other end prove that it is the manager. Raises: one of the network's errors, Unproven among them."""
        self._session = ProofSession(self._spec.token)
        connection.connect()
        # Otherwise http.client would reconnect by itself, to an unproven other end.
        connection.auto_open = 0
        # A stranger could send byte by byte without end, and so keep this keeper from the manager that has moved.
        watch = threading.Timer(_TIMEOUT_S, _cut, [connection.sock])
        watch.daemon = True
        watch.start()
        try:
            path = "{}{}/proof?nonce={}".format(self._find_base_path(), self._make_callback_path(), self._session.nonce)
            connection.request("GET", path)
            response = connection.getresponse()
            content = response.read(_MAX_PROOF_BYTES)
        finally:
            watch.cancel()
        if response.status != 200 or not self._session.meet(_parsed(content)):
            raise Unproven(
                "what answers {} at {} cannot prove to be the manager".format(response.status, self._address)
            )
        if response.will_close:
            raise Unproven("what answers at {} closes its connections".format(self._address))

    def _make_tls_settings(self) -> Any:
        import ssl

        context = ssl.create_default_context(cadata=self._spec.callback_ca)
        if self._spec.callback_ca:
            # The manager's own certificate is pinned, so the address of the connection does not matter.
            context.check_hostname = False
            # An authority that is not in this text may have signed it. Python 3.13 and later trust it all the same.
            context.verify_flags |= _PARTIAL_CHAIN
        return context

    def _find_base_path(self) -> str:
        return urlsplit(self._address).path.rstrip("/")

    def _make_callback_path(self) -> str:
        return _API + "/callback/" + quote(self._spec.job, safe="")

    def _copy(self, response: http.client.HTTPResponse, target: IO[bytes]) -> str:
        """Write the answer's body to `target`. Return its digest. Raises: LinkDown, OSError."""
        import hashlib

        found = hashlib.sha256()
        while True:
            try:
                chunk = response.read(_CHUNK_BYTES)
            except _list_network_errors() as error:
                raise LinkDown(_sentence(error)) from error
            if not chunk:
                return found.hexdigest()
            found.update(chunk)
            target.write(chunk)


class NoLink:
    """Sends nothing, for services that read the attempt's files themselves."""

    def post(self, events: List[Dict[str, Any]]) -> ManagerAnswer:
        return ManagerAnswer(200)

    def prepare(self) -> None:
        """Do nothing, as there is nothing to connect."""

    def close(self) -> None:
        """Do nothing, as nothing is open."""


def read_answer(status: int, data: Dict[str, Any]) -> ManagerAnswer:
    """Read the manager's answer from its JSON.

    Raises: LinkDown for a 200 or 409 that no manager of nnilite would send.
    """
    if status in (200, 409) and not _is_count(data.get("metrics")):
        raise LinkDown("what answers at the manager's address is not the manager")
    output = data.get("output")
    output = {k: v for k, v in output.items() if _is_count(v)} if isinstance(output, dict) else None
    return ManagerAnswer(
        status,
        data.get("cancel") is True,
        data.get("metrics") if _is_count(data.get("metrics")) else None,
        output,
        str(data.get("reason") or ": ".join(str(data[key]) for key in ("field", "error") if data.get(key))),
    )


def _parsed(content: bytes) -> Dict[str, Any]:
    """Return the JSON object of an answer; {} if it is not one."""
    try:
        data = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _cut(connection: Optional[socket.socket]) -> None:
    """End a connection from which another thread reads."""
    try:
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended by itself


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _list_network_errors() -> "Tuple[type[BaseException], ...]":
    import http.client

    return (OSError, http.client.HTTPException, ValueError)


def _sentence(error: BaseException) -> str:
    return str(error) or type(error).__name__


def modified(path: Optional[str]) -> float:
    """Return a file's time of modification; 0 if it is missing."""
    try:
        return os.stat(path).st_mtime if path else 0.0
    except OSError:
        return 0.0
