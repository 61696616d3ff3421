"""Shared storages that are reached by HTTP: S3 and compatible stores, and Azure's blobs.

Nothing but the standard library is used, so requests to S3 are signed here (AWS's "Signature Version 4"). Azure's need
no signature: they carry a shared access signature, made by the manager, which opens one container for some time.
URLs may hold that secret, so no error shows one.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import os
import re
import ssl
from typing import IO, Any, Callable, Dict, List, Mapping, Optional, Tuple
from urllib.parse import quote, urlsplit

from .storage import LocalFile, Storage, StorageError, nothing

_TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 20
_MOST_OF_ERROR_BYTES = 10_000
_EMPTY = hashlib.sha256(b"").hexdigest()
_SLOW_DOWN = (408, 429)
_REFUSED = (401, 403)
_TOO_LARGE = (400, 413)
_AZURE_VERSION = "2020-12-06"


class _HttpStorage(Storage):
    """What the two have in common: one request for each file."""

    cure = ""

    def __init__(self, url: str, prefix: str) -> None:
        self._address = urlsplit(url)
        if self._address.scheme not in ("http", "https") or not self._address.hostname:
            raise StorageError("its address is not a URL with http or https")
        self._base = self._address.path.rstrip("/")
        self._prefix = prefix.strip("/")
        self.title = "the shared storage at {}://{}{}".format(self._address.scheme, self._address.netloc, self._base)

    def put(self, name: str, path: str, progress: Callable[[int], None] = nothing) -> None:
        try:
            size, digest = _measure(path, progress)
            with open(path, "rb") as file:
                body = _Body(file, size, progress)
                self._ask("PUT", name, digest, body, {"Content-Length": str(size)})
        except OSError as error:
            raise StorageError("{} cannot be read: {}".format(path, error.strerror or error), away=True) from error

    def get(self, name: str, path: str, progress: Callable[[int], None] = nothing) -> bool:
        return self._ask("GET", name, _EMPTY, None, {}, (path, progress))

    def delete(self, name: str) -> None:
        self._ask("DELETE", name, _EMPTY, None, {})

    def _ask(
        self,
        method: str,
        name: str,
        digest: str,
        body: Optional["_Body"],
        headers: Dict[str, str],
        target: Optional[Tuple[str, Callable[[int], None]]] = None,
    ) -> bool:
        """Make one request. Return False if there is no such file. Raises: StorageError."""
        path = self._base + "/" + quote("/".join(part for part in (self._prefix, name) if part), safe="/~-._")
        query, more = self._sign(method, path, digest)
        connection = self._connection()
        try:
            connection.request(method, path + query, body, {**headers, **more})
            answer = connection.getresponse()
            if 200 <= answer.status < 300:
                if target is not None:
                    _receive(answer, *target)
                return True
            reply = answer.read(_MOST_OF_ERROR_BYTES).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise StorageError("it does not answer: {}".format(reason), away=True) from error
        finally:
            connection.close()
        return self._refusal(method, answer.status, reply)

    def _refusal(self, method: str, status: int, body: str) -> bool:
        """Raise a StorageError for an error of the server, or return False if it means a missing file."""
        code = (re.findall(r"<Code>([A-Za-z0-9]+)</Code>", body) or [""])[0]
        if status == 404 and method != "PUT" and code not in ("NoSuchBucket", "ContainerNotFound"):
            return False
        answer = "{} {}".format(status, code).strip()
        if status == 404:
            raise StorageError("there is no such bucket or container ({}); make it, or correct its name".format(answer))
        if status in _REFUSED:
            raise StorageError("it refuses the credentials ({}); {}".format(answer, self.cure))
        if status in _TOO_LARGE and method == "PUT" and code in ("EntityTooLarge", "RequestBodyTooLarge", ""):
            raise StorageError("the file is too large for it ({}); write several smaller files".format(answer))
        if status in (301, 307):
            raise StorageError("the bucket is elsewhere ({}); set sharedStorage.region to its region".format(answer))
        away = status >= 500 or status in _SLOW_DOWN
        raise StorageError("it answers {}".format(answer) + ("" if away else "; look at its address"), away=away)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            context = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
            return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)

    def _sign(self, method: str, path: str, digest: str) -> Tuple[str, Dict[str, str]]:
        """Return the query, with its question mark, and the headers that identify us to the server."""
        raise NotImplementedError


class S3Storage(_HttpStorage):
    """A bucket of S3. Without credentials of its own it takes those of AWS's environment variables."""

    cure = "correct accessKey and secretKey of sharedStorage, and let that key read and write this bucket"

    def __init__(self, entry: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        super().__init__(str(entry.get("url") or ""), str(entry.get("prefix") or ""))
        self._region = str(entry.get("region") or environment.get("AWS_DEFAULT_REGION") or "us-east-1")
        self._key, self._secret = str(entry.get("access_key") or ""), str(entry.get("secret") or "")
        self._session = str(entry.get("session_token") or "")
        if not self._key:
            self._key = environment.get("AWS_ACCESS_KEY_ID", "")
            self._secret = environment.get("AWS_SECRET_ACCESS_KEY", "")
            self._session = environment.get("AWS_SESSION_TOKEN", "")
        if not self._key or not self._secret:
            raise StorageError(
                "there are no credentials for it; set accessKey and secretKey of sharedStorage, or AWS_ACCESS_KEY_ID "
                "and AWS_SECRET_ACCESS_KEY"
            )

    def _sign(self, method: str, path: str, digest: str) -> Tuple[str, Dict[str, str]]:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": self._address.netloc.rpartition("@")[2], "x-amz-content-sha256": digest, "x-amz-date": now}
        if self._session:
            headers["x-amz-security-token"] = self._session
        scope = [now[:8], self._region, "s3", "aws4_request"]
        names = ";".join(sorted(headers))
        lines = ["{}:{}\n".format(name, headers[name]) for name in sorted(headers)]
        request = "\n".join([method, path, "", "".join(lines), names, digest])
        hashed = hashlib.sha256(request.encode("utf-8")).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", now, "/".join(scope), hashed])
        signature = _chain_hmac(("AWS4" + self._secret).encode("utf-8"), [*scope, text]).hex()
        signed = "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}".format(
            self._key, "/".join(scope), names, signature
        )
        return "", {**headers, "authorization": signed}


class AzureStorage(_HttpStorage):
    """A container of Azure's blob storage."""

    cure = (
        "correct storageAccountKey of sharedStorage, and the clock of the manager's machine; the signature of a job "
        "ends after 30 days, too"
    )

    def __init__(self, entry: Mapping[str, Any]) -> None:
        super().__init__(str(entry.get("url") or ""), str(entry.get("prefix") or ""))
        self._token = str(entry.get("sas_token") or "").lstrip("?")

    def _sign(self, method: str, path: str, digest: str) -> Tuple[str, Dict[str, str]]:
        headers = {"x-ms-version": _AZURE_VERSION}
        if method == "PUT":
            headers["x-ms-blob-type"] = "BlockBlob"
        return "?" + self._token, headers


class _Body:
    """A file as the body of a request: as long as it was when it was measured, and with its progress."""

    def __init__(self, file: IO[bytes], size: int, progress: Callable[[int], None]) -> None:
        self._file = file
        self._left = size
        self._progress = progress

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        piece = self._file.read(wanted)
        if len(piece) < wanted:
            raise OSError("it has become shorter meanwhile")
        self._left -= len(piece)
        self._progress(len(piece))
        return piece


def _measure(path: str, progress: Callable[[int], None]) -> Tuple[int, str]:
    """Return size and SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while True:
            piece = file.read(_CHUNK_BYTES)
            if not piece:
                return size, digest.hexdigest()
            digest.update(piece)
            size += len(piece)
            progress(len(piece))


def _receive(answer: http.client.HTTPResponse, path: str, progress: Callable[[int], None]) -> None:
    """Write the content to a file. Raises: OSError if not all of it comes."""
    wanted, size = answer.headers.get("Content-Length"), 0
    with LocalFile(path) as file:
        while True:
            piece = answer.read(_CHUNK_BYTES)
            if not piece:
                break
            file.write(piece)
            size += len(piece)
            progress(len(piece))
        if wanted is not None and int(wanted) != size:
            raise OSError("the connection broke off")


def _chain_hmac(key: bytes, words: List[str]) -> bytes:
    for word in words:
        key = hmac.new(key, word.encode("utf-8"), hashlib.sha256).digest()
    return key
