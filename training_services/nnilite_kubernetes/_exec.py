"""A command in a container, with its standard input and output, as `kubectl exec` has it: over a WebSocket.

Each message begins with the number of its channel. This uses version 4 of the protocol, which all clusters support. It
cannot signal the end of standard input, so the command has to know how many bytes come.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import websocket
from kubernetes.client.configuration import Configuration

from nnilite_kubernetes._connections import break_socket

_STDIN, _STDOUT, _STDERR, _RESULT = range(4)
_PROTOCOL = "v4.channel.k8s.io"
_PIECE_BYTES = 1 << 18
_LIMIT_S = 60.0
_MOST_BYTES = 1 << 20  # limit for one line
_MOST_COMPLAINT = 2000


class ExecError(Exception):
    """The command could not be run, or has failed; one sentence. `status`: of HTTP, where it was refused."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Execution:
    """A command that runs. All methods block, a minute at most, and raise ExecError."""

    def __init__(self, configuration: Configuration, path: str, headers: Mapping[str, str]) -> None:
        url = "ws" + str(configuration.host).rstrip("/").removeprefix("http") + path
        self._output = b""
        self._complaint = b""
        self._ended = False
        try:
            self._socket = websocket.create_connection(
                url,
                timeout=_LIMIT_S,
                header=[f"{name}: {value}" for name, value in headers.items()],
                subprotocols=[_PROTOCOL],
                suppress_origin=True,
                redirect_limit=0,  # a kubelet could send our headers, the token among them, to any host
                sslopt={
                    "context": _make_tls_settings(configuration),
                    "server_hostname": configuration.tls_server_name or None,
                },
                **_proxy(configuration),
            )
        except websocket.WebSocketBadStatusException as error:
            raise ExecError(_read_message(error), int(error.status_code)) from error
        except (websocket.WebSocketException, OSError) as error:
            raise ExecError(f"the API server cannot be reached: {error}") from error

    def send(self, data: bytes) -> None:
        """Write to standard input."""
        try:
            for start in range(0, len(data), _PIECE_BYTES):
                self._socket.send_binary(bytes([_STDIN]) + data[start : start + _PIECE_BYTES])
        except (websocket.WebSocketException, OSError) as error:
            raise ExecError(f"the connection to the container broke off: {error}") from error

    def line(self) -> bytes:
        """Return the next line of standard output."""
        with self._in_time():
            while b"\n" not in self._output:
                if self._ended:
                    complaint = self._complaint.decode("utf-8", "replace")[-500:]
                    raise ExecError(f"the command has ended too early: {complaint}")
                if len(self._output) > _MOST_BYTES:
                    raise ExecError("the command answers without an end of line")
                self._receive()
        line, _, self._output = self._output.partition(b"\n")
        return line

    def close(self) -> None:
        """Close the connection, whether the command has ended or not."""
        self._socket.close(timeout=1)
        # Once the pod has begun to close, that does nothing.
        self._socket.shutdown()  # type: ignore[no-untyped-call]

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        """End the connection after a minute: the limit of the socket begins again with each byte that comes."""
        limit = threading.Timer(_LIMIT_S, break_socket, [self._socket.sock])
        limit.daemon = True
        limit.start()
        try:
            yield
        finally:
            limit.cancel()

    def _receive(self) -> None:
        try:
            kind, data = self._socket.recv_data()
        except (websocket.WebSocketException, OSError) as error:
            raise ExecError(f"the connection to the container broke off: {error}") from error
        if kind == websocket.ABNF.OPCODE_CLOSE:
            self._ended = True
        elif data[:1] == bytes([_STDOUT]):
            self._output += data[1:]
        elif data[:1] == bytes([_STDERR]):
            self._complaint = (self._complaint + data[1:])[-_MOST_COMPLAINT:]
        elif data[:1] == bytes([_RESULT]):
            self._complaint += b" " + _result(data[1:])
            self._ended = True


def _result(data: bytes) -> bytes:
    """Return the failure that the last message reports; "" for success."""
    try:
        content = json.loads(data)
        return b"" if content.get("status") == "Success" else str(content.get("message")).encode()
    except (ValueError, AttributeError, RecursionError):
        return data


def _read_message(error: Any) -> str:
    """Return the message of the API server."""
    try:
        return str(json.loads(error.resp_body)["message"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return str(error)


def _make_tls_settings(configuration: Configuration) -> ssl.SSLContext:
    """Return the TLS settings that the client uses for all other calls."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif configuration.assert_hostname is False:
        context.check_hostname = False
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _proxy(configuration: Configuration) -> dict[str, Any]:
    if not configuration.proxy:
        return {}
    parts = urlsplit(configuration.proxy)
    return {"http_proxy_host": parts.hostname, "http_proxy_port": parts.port, "proxy_type": "http"}
