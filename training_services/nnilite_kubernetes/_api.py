"""The API server, over the connection settings of the Python `kubernetes` client.

Objects are plain JSON here: the client's own classes check bodies against the version of Kubernetes that they were made
from, and differently in each release of the client, while only this server's checks count. The client provides the
kubeconfig, the service account of a pod, their certificates, tokens and plugins for signing in.

Every call blocks, within a time limit, and belongs in a thread. Several threads may use one `Cluster`. A request that
a server refuses because it is too busy, or still starting, is repeated for a while.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject

from nnilite.errors import ServiceError
from nnilite.platform_http import Try, limited_by, make_abortable
from nnilite.records import Json
from nnilite_kubernetes._connections import ApiConnections
from nnilite_kubernetes._exec import Execution
from nnilite_kubernetes._kube_credentials import Credentials

log = logging.getLogger(__name__)

_TIMEOUT_S = 15.0
_ANSWER_S = 60.0  # for a whole answer, however it comes, or for its head where it comes in pieces
_WATCH_S = 240  # a watch is asked for so long, then begun anew
_SILENCE_S = _WATCH_S + 60.0  # so long nothing may come of an answer that follows what happens
_MOST_BYTES = 256_000_000  # for a whole answer: some ten thousand pods
_MOST_REFUSAL_BYTES = 1_000_000
_LONGEST_EVENT_BYTES = 16_000_000  # objects have 1.5 MB at most
_BUSY = (429, 503)
_PATIENCE_S = 30.0  # for a server that asks us to come back later: for all the tries of one request
_LONGEST_WAIT_S = 10.0
_CONTENT = {
    "json": "application/json",
    "merge": "application/merge-patch+json",
    "jsonpatch": "application/json-patch+json",
}
_TOO_MANY = (429, 500, 502, 503, 504)


class ApiError(ServiceError):
    """The API server refused; `status` is the HTTP status, 0 without an answer."""

    def __init__(self, message: str, status: int = 0, reason: str = "", wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.wait_s = wait_s  # the server asks to be left alone for so long

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status == 0 or self.status in _TOO_MANY


@dataclass(frozen=True)
class Resource:
    """A kind of object, by the names in its paths. `group` is "" for the core."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str, name: str = "") -> str:
        """Return the path of one object, or of all in a namespace; "" for what belongs to the whole cluster."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        path = f"{root}/namespaces/{quote(namespace, safe='')}/{self.plural}" if namespace else f"{root}/{self.plural}"
        return f"{path}/{quote(name, safe='')}" if name else path


PODS = Resource("", "v1", "pods", "Pod")
SECRETS = Resource("", "v1", "secrets", "Secret")
EVENTS = Resource("", "v1", "events", "Event")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
JOBS = Resource("batch", "v1", "jobs", "Job")


def connect(kubeconfig_file: str | None, context: str | None) -> Cluster:
    """Connect to the cluster of a kubeconfig, or to the one that this process runs in. Raises: ConfigError."""
    return Cluster(Credentials(kubeconfig_file, context))


@dataclass(frozen=True)
class _ApiPools:
    """Holds connections, and the settings that they were made with."""

    configuration: Configuration
    pool: Any


class Cluster:
    """One API server, and this account there."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._connections = ApiConnections()
        self._way = self._open_way()
        self._closed = threading.Event()

    @property
    def host(self) -> str:
        """Return the address of the server."""
        return str(self._way.configuration.host).rstrip("/")

    def _open_way(self) -> _ApiPools:
        """Make new connections: certificates belong to them."""
        configuration = self._credentials.configuration
        pool = RESTClientObject(configuration).pool_manager
        make_abortable(pool)
        self._connections.count(pool)
        return _ApiPools(configuration, pool)

    def close(self) -> None:
        """Close all connections. Calls and streams of other threads end with an ApiError."""
        self._closed.set()
        self._connections.break_off()
        self._way.pool.clear()

    def get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Return an object, None if it does not exist. Raises: ApiError."""
        try:
            return self.call("GET", resource.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def select(self, resource: Resource, namespace: str, **query: str) -> Json:
        """Return the list object of all that the query (labelSelector, fieldSelector) selects. Raises: ApiError."""
        return self.call("GET", resource.path(namespace), query=query)

    def create(self, resource: Resource, namespace: str, body: Json) -> Json:
        """Return the object as created, or as it exists already. The server refuses unknown fields if it can.

        Raises: ApiError.
        """
        try:
            return self.call("POST", resource.path(namespace), body, query={"fieldValidation": "Strict"})
        except ApiError as error:
            if error.status != 409:
                raise
        found = self.get(resource, namespace, body["metadata"]["name"])
        if found is None:
            raise ApiError(f"the {resource.kind} {body['metadata']['name']} is being deleted")
        return found

    def patch(self, resource: Resource, namespace: str, name: str, body: Json, kind: str = "merge") -> Json:
        """Change an object; `kind` is "merge" or "jsonpatch". Raises: ApiError."""
        return self.call("PATCH", resource.path(namespace, name), body, kind=kind)

    def delete(self, resource: Resource, namespace: str, name: str, uid: str = "", policy: str = "Background") -> bool:
        """Delete the object with this `uid`. Return False if it does not exist. Raises: ApiError."""
        body: dict[str, Json] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            self.call("DELETE", resource.path(namespace, name), body)
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    def pod_log(self, namespace: str, pod: str, container: str, since: str = "") -> LogStream:
        """Return a container's output so far, each line after its time. Raises: ApiError."""
        path = _log_path(namespace, pod, container, since, timestamps="true")
        return LogStream(self._exchange("GET", path, stream_s=_TIMEOUT_S))

    def log_stream(self, namespace: str, pod: str, container: str, most_bytes: int, follow: bool) -> LogStream:
        """Return a container's output as a stream; with `follow` until the container ends. Raises: ApiError."""
        more = {"follow": "true"} if follow else {}
        path = _log_path(namespace, pod, container, limitBytes=str(most_bytes), **more)
        return LogStream(self._exchange("GET", path, stream_s=_SILENCE_S if follow else _TIMEOUT_S))

    def follow_log(self, namespace: str, pod: str, container: str, since: str = "") -> LogStream:
        """Follow the output of a container to its end, across rotations; times begin the lines. Raises: ApiError."""
        path = _log_path(namespace, pod, container, since, timestamps="true", follow="true")
        return LogStream(self._exchange("GET", path, stream_s=_SILENCE_S))

    def execute(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> Execution:
        """Run a command in a container that runs. Raises: ExecError."""
        query = [*(("command", word) for word in command), ("container", container)]
        query += [(stream, "true") for stream in ("stdin", "stdout", "stderr")]
        path = f"{PODS.path(namespace, pod)}/exec?{urlencode(query)}"
        return Execution(self._way.configuration, path, self._credentials.headers())

    def allowed(self, namespace: str, verb: str, resource: Resource, subresource: str = "") -> bool:
        """Return whether this account may do this; True if the server does not say. Raises: ApiError."""
        attributes = {
            "namespace": namespace,
            "verb": verb,
            "group": resource.group,
            "resource": resource.plural,
            **({"subresource": subresource} if subresource else {}),
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = self.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        except ApiError as error:
            if error.status in (403, 404):
                return True
            raise
        return bool((answer.get("status") or {}).get("allowed"))

    def served(self, group: str, version: str) -> list[str]:
        """Return the plural names that the server has in a version of a group; [] without that version."""
        try:
            found = self.call("GET", f"/apis/{group}/{version}")
        except ApiError as error:
            if error.status == 404:
                return []
            raise
        return [str(entry["name"]) for entry in found.get("resources") or []]

    def call(
        self, method: str, path: str, body: Json = None, kind: str = "json", query: Mapping[str, str] | None = None
    ) -> Any:
        """Send one request and return its answer as JSON. Raises: ApiError."""
        data = None if body is None else json.dumps(body).encode()
        answer = self._exchange(method, f"{path}?{urlencode(query)}" if query else path, data, kind)
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise ApiError(f"{self.host} does not answer as Kubernetes does: {answer[:200]!r}") from error

    def watch(self, resource: Resource, namespace: str, selector: str, version: str) -> Watch:
        """Watch the changes since a resource version, until the server ends the watch. Raises: ApiError."""
        query = {
            "watch": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        path = f"{resource.path(namespace)}?{urlencode(query)}"
        return Watch(self._exchange("GET", path, stream_s=_SILENCE_S))

    def _exchange(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        kind: str = "json",
        stream_s: float | None = None,
    ) -> Any:
        """Return the answer's bytes; the answer itself if `stream_s` limits the time between two pieces of it.

        Raises: ApiError.
        """
        deadline = time.monotonic() + _PATIENCE_S
        may_sign_in = True
        while True:
            way = self._way
            try:
                with _ending((stream_s or 0.0) + _ANSWER_S):
                    return self._ask(way, method, path, data, kind, stream_s)
            except ApiError as error:
                if error.status == 401 and may_sign_in and self._sign_in(way):
                    may_sign_in = False
                    continue
                later = error.status in _BUSY and error.wait_s > 0
                pause_s = min(error.wait_s, _LONGEST_WAIT_S)
                if not later or time.monotonic() + pause_s > deadline or self._closed.wait(pause_s):
                    raise

    def _sign_in(self, refused: _ApiPools) -> bool:
        """Load the credentials again; return whether the same request may do with them."""
        if not self._credentials.renew(refused.configuration):
            return False
        if self._way.configuration is not self._credentials.configuration:
            log.info("the credentials of %s were loaded again", self._credentials.source)
            self._way = self._open_way()
        return True

    def _ask(
        self, way: _ApiPools, method: str, path: str, data: bytes | None, kind: str, stream_s: float | None
    ) -> Any:
        headers = {"Accept": "application/json, */*", **self._credentials.headers()}
        if data is not None:
            headers["Content-Type"] = _CONTENT[kind]
        timeout = urllib3.Timeout(connect=_TIMEOUT_S, read=stream_s or _TIMEOUT_S)
        try:
            answer = way.pool.request(
                method,
                str(way.configuration.host).rstrip("/") + path,
                body=data,
                headers=headers,
                timeout=timeout,
                retries=False,
                preload_content=False,
            )
            if answer.status >= 400:
                refusal = _refusal(method, path, answer, _read(answer, _MOST_REFUSAL_BYTES))
                if answer.status == 401:
                    raise ApiError(self._explain_not_known(refusal), 401, "Unauthorized")
                raise refusal
            if stream_s is None:
                return _read(answer, _MOST_BYTES)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(f"the API server {self.host} cannot be reached: {error}") from error
        return answer

    def _explain_not_known(self, refusal: ApiError) -> str:
        return f"{refusal}; sign in again: {self._credentials.source} is read at each try"


def _read(answer: Any, most: int) -> bytes:
    """Return the content of an answer, which may be no longer. Raises: ApiError, HTTPError, OSError."""
    content = bytearray()
    for chunk in answer.stream(65536, decode_content=True):
        content += chunk
        if len(content) > most:
            answer.close()
            status = answer.status if answer.status >= 400 else 0
            raise ApiError(f"the API server answers with more than {most} bytes", status)
    return bytes(content)


def _log_path(namespace: str, pod: str, container: str, since: str = "", **query: str) -> str:
    """Return the path of a container's output, from the time `since` on if there is one."""
    given = {"container": container, **query, **({"sinceTime": since} if since else {})}
    return f"{PODS.path(namespace, pod)}/log?{urlencode(given)}"


@contextlib.contextmanager
def _ending(limit_s: float) -> Iterator[None]:
    """End the connection that this thread uses after some time: one that drips would keep it busy without end."""
    tried = Try()
    with limited_by(limit_s, tried.end), tried.in_this_thread():
        yield


class LogStream:
    """An answer that arrives in pieces. Another thread may call `stop`."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self._stopped = threading.Event()

    def lines(self, whole: bool = False, longest: float = math.inf) -> Generator[bytes, None, None]:
        """Yield lines without their ends, and the rest after the last one unless `whole`. Raises: ApiError.

        Of a line of more than `longest` bytes only the beginning is yielded.
        """
        rest, is_cut = bytearray(), False
        try:
            for chunk in self._answer.stream(65536, decode_content=True):
                rest += chunk
                if b"\n" in chunk:
                    *lines, rest = rest.split(b"\n")
                    yield from map(bytes, lines[1:] if is_cut else lines)
                    is_cut = False
                if len(rest) > longest and not is_cut:
                    yield bytes(rest)
                    is_cut = True
                if is_cut:
                    rest = bytearray()
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
            if not self._stopped.is_set():
                raise ApiError(f"the connection broke off: {error}") from error
        finally:
            self._answer.close()
        if rest and not whole:
            yield bytes(rest)

    def stop(self) -> None:
        """End the iteration soon."""
        self._stopped.set()
        with contextlib.suppress(OSError, AttributeError, ValueError, RuntimeError):
            self._answer.shutdown()  # wakes the reader


class Watch(LogStream):
    """The events of one watch."""

    _expired = False

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        """Yield pairs of type and object. Raises: ApiError, also for an ERROR event (410: the version is too old)."""
        # A proxy that drips, or a server that forgets to end the watch, would hide all changes without end.
        with limited_by(_SILENCE_S, self._expire):
            for line in filter(None, self.lines(longest=_LONGEST_EVENT_BYTES)):
                try:
                    yield self._event(line)
                except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                    self._check_time()
                    raise ApiError(f"the watch broke off in {line[-200:]!r}") from error
            self._check_time()

    def _check_time(self) -> None:
        """Have all listed again where a watch had to be ended. Raises: ApiError."""
        if self._expired:
            raise ApiError("the watch did not end in time", 410)

    def _expire(self) -> None:
        self._expired = True
        self.stop()

    @staticmethod
    def _event(line: bytes) -> tuple[str, Json]:
        event = json.loads(line)
        content = event["object"]
        if event["type"] == "ERROR":
            raise ApiError(str(content.get("message")), int(content.get("code") or 0), str(content.get("reason")))
        return str(event["type"]), content


def _refusal(method: str, path: str, answer: Any, data: bytes) -> ApiError:
    """Return the message of an answer of 400 or more: a Status object, or plain text for an unknown path."""
    try:
        content = json.loads(data)
        message, reason = str(content.get("message") or content), str(content.get("reason") or "")
    except (ValueError, AttributeError, RecursionError):
        message, reason = data.decode("utf-8", "replace").strip()[:300], ""
    with contextlib.suppress(ValueError):
        wait_s = float(answer.headers.get("Retry-After") or 0)
        return ApiError(_sentence(method, path, answer.status, message), answer.status, reason, wait_s)
    return ApiError(_sentence(method, path, answer.status, message), answer.status, reason)


def _sentence(method: str, path: str, status: int, message: str) -> str:
    return f"the API server refuses {method} {path.partition('?')[0]} ({status}): {message}"
