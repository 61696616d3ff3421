"""A stand-in for the file service of an Azure storage account: shares, folders and files, by its REST interface.

Requests have to be signed with the account's key, by the published rules (Shared Key of Blob, Queue and File services).
Files lie in `folder`, in a folder for each share. Only what is needed to put files there is understood.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from nnilite.testing.listener import Handler, Listener

_SIGNED = (
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-MD5",
    "Content-Type",
    "Date",
    "If-Modified-Since",
    "If-Match",
    "If-None-Match",
    "If-Unmodified-Since",
    "Range",
)


class AzureFiles:
    """Use as a context manager. `received` counts the bytes of files that have been sent."""

    def __init__(self, account: str, key: str, folder: Path) -> None:
        self.folder = folder
        self.received = 0
        self.metadata: dict[Path, dict[str, str]] = {}
        self._account, self._key = account, base64.b64decode(key)
        self._listener = Listener(_Account, self)

    def __enter__(self) -> AzureFiles:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.stop()

    @property
    def url(self) -> str:
        return self._listener.url

    def signature(self, method: str, target: str, headers: Any) -> str:
        """What the Authorization header has to be."""
        parts = urlsplit(target)
        values = [headers.get(name) or "" for name in _SIGNED]
        values[2] = "" if values[2] == "0" else values[2]
        own = sorted(
            (name.lower(), value.strip()) for name, value in headers.items() if name.lower().startswith("x-ms-")
        )
        query = sorted((name.lower(), value) for name, value in parse_qsl(parts.query, keep_blank_values=True))
        resource = f"/{self._account}{parts.path}" + "".join(f"\n{name}:{value}" for name, value in query)
        text = "\n".join([method, *values, *(f"{name}:{value}" for name, value in own), resource])
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).digest()
        return f"SharedKey {self._account}:{base64.b64encode(digest).decode()}"

    def put(self, path: Path, query: dict[str, str], headers: Any, body: bytes) -> tuple[int, str]:
        """Status and error code of a PUT."""
        if query.get("restype") in ("share", "directory"):
            return self._make_folder(path)
        if query.get("comp") == "metadata":
            self.metadata[path] = {k.lower(): v for k, v in headers.items() if k.lower().startswith("x-ms-meta-")}
            return (200, "") if path.is_file() else (404, "ResourceNotFound")
        if query.get("comp") == "range":
            return self._write(path, headers, body)
        if not path.parent.is_dir():
            return 404, "ParentNotFound"
        with path.open("wb") as file:
            file.truncate(int(headers["x-ms-content-length"]))
        self.metadata.pop(path, None)
        return 201, ""

    def _make_folder(self, path: Path) -> tuple[int, str]:
        if path.exists():
            return 409, "ShareAlreadyExists" if path.parent == self.folder else "ResourceAlreadyExists"
        if not path.parent.is_dir():
            return 404, "ParentNotFound"
        path.mkdir()
        return 201, ""

    def _write(self, path: Path, headers: Any, body: bytes) -> tuple[int, str]:
        first, last = map(int, re.findall(r"\d+", headers["x-ms-range"]))
        if not path.is_file() or last >= path.stat().st_size or len(body) != last - first + 1 or len(body) > 4 << 20:
            return 416, "InvalidRange"
        with path.open("r+b") as file:
            file.seek(first)
            file.write(body)
        self.received += len(body)
        return 201, ""


class _Account(Handler):
    owner: AzureFiles

    def _serve(self) -> None:
        body = self.body()
        parts = urlsplit(self.path)
        path = self.owner.folder.joinpath(*unquote(parts.path).strip("/").split("/"))
        if self.headers.get("Authorization") != self.owner.signature(self.command, self.path, self.headers):
            self._answer(403, "AuthenticationFailed")
        elif self.command == "PUT":
            self._answer(*self.owner.put(path, dict(parse_qsl(parts.query)), self.headers, body))
        elif path.is_file():
            known = self.owner.metadata.get(path, {})
            self._answer(200, "", **known)
        else:
            self._answer(404, "ResourceNotFound")

    do_PUT = do_HEAD = _serve

    def _answer(self, status: int, code: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"ETag": '"1"', "Last-Modified": "Sat, 01 Nov 2025 00:00:00 GMT", **headers}.items():
            self.send_header(name, value)
        if code:
            self.send_header("x-ms-error-code", code)
        text = (
            f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode()
            if code
            else b""
        )
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
