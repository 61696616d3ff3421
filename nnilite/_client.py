"""A client of one manager's REST interface, on the standard library alone so that `nnictl` starts fast.

    with Client(url, token) as client:
        client.profile()["state"]

One object speaks to one manager over one kept-open connection, may be used by several threads, and waits `timeout_s`
at most for each answer. Answers are the JSON of the REST interface (`docs/reference/rest.md`) as dicts, with the
non-finite numbers NaN, Infinity and -Infinity turned back into floats where a metric stands. Proxies are not used.
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from nnilite.errors import ConfigError, Conflict, NniliteError, NotFound, Place, ServiceError

log = logging.getLogger(__name__)

_T = TypeVar("_T")

PAGE = 1000
"""How many trials or metrics are asked for at once: the most that a manager answers."""

CHUNK_BYTES = 1 << 20
"""How much of a file is asked for or kept in memory at once."""

_TUNER_TIMEOUT_S = 150.0
"""So long a tuner may take to start before nobody waits for the answer."""

_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class Unreachable(NniliteError, RuntimeError):
    """The manager does not answer: it is not running, or it is not where it was looked for."""


class ManagerError(NniliteError, RuntimeError):
    """The manager answered with an error of its own."""


class Client:
    """Speaks to the manager at `url` (`http[s]://host:port[/prefix]`), with the experiment's token if it has one.

    `certificate`: a PEM file to trust for https, besides those that the system trusts; for the manager's own
    certificate no host name is compared. Raises, in every method: Unreachable, NotFound, Conflict, ConfigError (the
    input was refused), ServiceError (try again later), ManagerError.
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout_s: float = 20.0, certificate: Path | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is not the address of a manager; it looks like http://127.0.0.1:8080")
        self.url = url.rstrip("/")
        self._secure = parts.scheme == "https"
        self._address = (parts.hostname, parts.port or (443 if self._secure else 80))
        self._base = parts.path.rstrip("/") + "/api/v1"
        self._token = token
        self._timeout_s = timeout_s
        self._certificate = certificate
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        """A client that was forgotten leaves no open connection behind."""
        if getattr(self, "_connection", None) is not None:
            self._drop()

    def close(self) -> None:
        """Let go of the connection; the next call opens a new one."""
        with self._lock:
            self._drop()

    # The experiment

    def version(self) -> dict[str, Any]:
        """What the manager is: its version and the experiment's id."""
        found: dict[str, Any] = self._json("GET", "/version")
        return found

    def profile(self) -> dict[str, Any]:
        """The experiment: id, state, reason, config, limits, counts, best, hosts, waiting, ..."""
        profile: dict[str, Any] = self._json("GET", "/experiment")
        if profile.get("best"):
            profile["best"] = _trial(profile["best"])
        return profile

    def update(self, **changes: Any) -> dict[str, Any]:
        """Change trialConcurrency, maxTrialNumber, maxExperimentDuration, maxTrialDuration or searchSpace.

        The last may take a while: a new tuner has to take it first.
        """
        timeout_s = max(self._timeout_s, _TUNER_TIMEOUT_S) if "searchSpace" in changes else self._timeout_s
        with Client(self.url, self._token, timeout_s=timeout_s, certificate=self._certificate) as patient:
            profile: dict[str, Any] = patient._json("PATCH", "/experiment", body=changes)
        return profile

    def stop(self) -> None:
        """Ask the manager to stop the experiment and to end; returns before it has."""
        self._json("POST", "/experiment/stop", body={})

    def sign_in_link(self) -> str:
        """The address of the web page; with a token it signs in once, within ten minutes."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{self._json('POST', '/sign-in-links', body={})['path']}"

    def export(self, form: str, write: Callable[[bytes], object]) -> None:
        """Hand all ended trials, as `json` or `csv`, to `write` piece by piece."""
        self._stream("/export", {"format": form}, write)

    def import_data(self, data: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
        """Tell the tuner of results from elsewhere, `{"parameter": ..., "value": ...}` each.

        Says how many were new, and of those that the tuner may not learn, "" if there are none.
        """
        answer = self._json("POST", "/import", body=data)
        return int(answer["imported"]), str(answer["warning"])

    # Trials

    def trials(
        self, *, states: Sequence[str] = (), sort: str = "sequence", descending: bool = False, limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Trials in the order of `sort` (sequence, value, started, ended, duration), asked for page by page."""
        query = {"sort": sort, "descending": "true" if descending else "false", "state": list(states)}
        offset = 0
        while limit is None or offset < limit:
            count = PAGE if limit is None else min(PAGE, limit - offset)
            page = self._json("GET", "/trials", {**query, "offset": offset, "limit": count})
            found = page["trials"]
            yield from map(_trial, found)
            offset += len(found)
            if not found or offset >= page["total"]:
                return

    def trial(self, trial: str) -> dict[str, Any]:
        """One trial, with its `attempts`."""
        return _trial(self._json("GET", f"/trials/{_part(trial)}"))

    def add_trial(self, parameters: Any) -> dict[str, Any]:
        """Put a trial with the user's own parameters into the queue."""
        return _trial(self._json("POST", "/trials", body={"parameters": parameters}))

    def cancel(self, trial: str) -> dict[str, Any]:
        """Stop a waiting or running trial."""
        return _trial(self._json("DELETE", f"/trials/{_part(trial)}"))

    def scale(self, trial: str, workers: int) -> dict[str, Any]:
        """Change the number of workers of an elastic trial while it goes on."""
        return _trial(self._json("PUT", f"/trials/{_part(trial)}/workers", body={"workers": workers}))

    def rerun(self, *, ids: Sequence[str] = (), state: str | None = None) -> list[dict[str, Any]]:
        """Run ended trials again, those named or all of a state; gives them as they are now."""
        answer = self._json("POST", "/trials/rerun", body={"state": state} if state else {"ids": list(ids)})
        return [_trial(trial) for trial in answer["trials"]]

    def metrics(self, trial: str | None = None, *, kind: str | None = None) -> Iterator[dict[str, Any]]:
        """Reported values, oldest first: of one trial or of all, of one kind (PERIODICAL, FINAL) or of both."""
        path = "/metrics" if trial is None else f"/trials/{_part(trial)}/metrics"
        after = 0
        while True:
            page = self._json("GET", path, {"kind": kind, "after": after, "limit": PAGE})
            for metric in page["metrics"]:
                yield {**metric, "value": _numbers(metric["value"])}
            if len(page["metrics"]) < PAGE:
                return
            after = page["next"]

    # Files

    def output(
        self, trial: str, stream: str, offset: int = 0, *, attempt: int | None = None, limit: int = CHUNK_BYTES
    ) -> tuple[bytes, int]:
        """A piece of a trial's stdout or stderr from byte `offset` (from the end if negative), and its end."""
        query = {"offset": offset, "limit": limit, "attempt": attempt}
        return self._piece(f"/trials/{_part(trial)}/output/{_part(stream)}", query)

    def log(self, name: str, offset: int = 0, *, limit: int = CHUNK_BYTES) -> tuple[bytes, int]:
        """A piece of the log of the `manager` or `tuner` from byte `offset` (from the end if negative), and its end."""
        return self._piece(f"/logs/{_part(name)}", {"offset": offset, "limit": limit})

    def files(self, trial: str, *, fetch: bool = True) -> list[dict[str, Any]]:
        """The files of a trial: path (relative), size (bytes), mtime. `fetch`: those elsewhere are copied first."""
        query = {"fetch": "true" if fetch else "false"}
        found: list[dict[str, Any]] = self._json("GET", f"/trials/{_part(trial)}/files", query)["files"]
        return found

    def download(self, trial: str, path: str, write: Callable[[bytes], object]) -> None:
        """Hand one file of a trial, `path` as `files` gives it, to `write` piece by piece."""
        self._stream(f"/trials/{_part(trial)}/files/{quote(path)}", {}, write)

    # The wire

    def _json(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        with self._lock:
            response = self._send(method, path, query, body)
            text = self._guarded(response.read)
        if not text:
            return {}
        try:
            return json.loads(text)
        except ValueError as error:
            raise ManagerError(f"{self.url} does not answer as a manager of nnilite does: {error}") from error

    def _stream(self, path: str, query: Mapping[str, Any], write: Callable[[bytes], object]) -> None:
        with self._lock:
            response = self._send("GET", path, query, None)
            try:
                while piece := self._guarded(lambda: response.read(CHUNK_BYTES)):
                    write(piece)
            except BaseException:
                self._drop()  # the rest of the answer is still in it
                raise

    def _piece(self, path: str, query: Mapping[str, Any]) -> tuple[bytes, int]:
        with self._lock:
            response = self._send("GET", path, query, None)
            data = self._guarded(response.read)
        following = response.headers.get("X-Next-Offset")
        return data, int(following) if following else int(query["offset"]) + len(data)

    def _send(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any) -> http.client.HTTPResponse:
        asked = {name: value for name, value in (query or {}).items() if value not in (None, [])}
        target = self._base + path + (f"?{urlencode(asked, doseq=True)}" if asked else "")
        if method != "GET":
            self._drop()  # a kept connection may have been closed meanwhile: only a GET may be sent twice
        fresh = self._connection is None
        try:
            response = self._attempt(method, target, body)
        except (http.client.HTTPException, OSError) as error:
            self._drop()
            if fresh or isinstance(error, TimeoutError):
                raise self._unreachable(error) from error
            response = self._guarded(lambda: self._attempt(method, target, body))
        if response.status >= 400:
            raise self._refusal(response)
        return response

    def _attempt(self, method: str, target: str, body: Any) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = self._connect()
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        payload = None
        if method != "GET":
            headers["Content-Type"] = "application/json"
            payload = b"" if body is None else json.dumps(plain(body), allow_nan=False).encode()
        self._connection.request(method, target, payload, headers)
        return self._connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address
        if not self._secure:
            return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=_trust(self._certificate))

    def _guarded(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except (http.client.HTTPException, OSError) as error:
            self._drop()
            raise self._unreachable(error) from error

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _unreachable(self, error: Exception) -> Unreachable:
        if isinstance(error, TimeoutError):
            return Unreachable(f"The manager at {self.url} did not answer within {self._timeout_s:g} s.")
        cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unreachable(f"The manager at {self.url} does not answer: {cause}.")

    def _refusal(self, response: http.client.HTTPResponse) -> NniliteError:
        text = self._guarded(response.read)
        try:
            answer = json.loads(text)
            sentence = str(answer["error"])
        except (ValueError, KeyError, TypeError):
            answer, sentence = {}, f"{self.url} answered {response.status} {response.reason}."
        return _error(response.status, sentence, answer.get("field"))


def _error(status: int, sentence: str, field: str | None) -> NniliteError:
    if status in (400, 413, 422):
        return ConfigError(sentence, Place(field=field))
    kinds: dict[int, type[NniliteError]] = {404: NotFound, 409: Conflict, 429: ServiceError, 503: ServiceError}
    return kinds.get(status, ManagerError)(sentence)


def _trust(certificate: Path | None) -> Any:
    """The manager's own certificate is trusted as it is, whatever name it bears: it is known by its file."""
    import ssl

    context = ssl.create_default_context()
    if certificate is not None:
        context.load_verify_locations(certificate)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = False
    return context


def _part(text: str) -> str:
    """One part of a path. Dots alone would be taken for a folder by what stands between here and the manager."""
    if text in ("", ".", ".."):
        raise NotFound(f"There is no {text!r}.")
    return quote(text, safe="")


def _trial(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "value": _numbers(data.get("value"))}


def _numbers(value: Any) -> Any:
    """A metric as it was reported: JSON cannot carry NaN and infinities, so they travel as strings."""
    if isinstance(value, str):
        return _NUMBERS.get(value, value)
    if isinstance(value, dict):
        return {key: _numbers(part) for key, part in value.items()}
    return value


def plain(value: Any) -> Any:
    """The inverse: JSON that any parser takes."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return next(name for name, number in _NUMBERS.items() if repr(number) == repr(value))
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value
