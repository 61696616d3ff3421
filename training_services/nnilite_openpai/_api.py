"""Make the calls to OpenPAI's REST server, and to the servers that keep logs."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

from nnilite.errors import ConfigError, NoCapacity
from nnilite.platform_http import (
    AccessRefused,
    CallRefused,
    Contradiction,
    Credential,
    HttpRequest,
    Missing,
    Outage,
    PlatformHttp,
    Throttled,
    hide,
)
from nnilite.records import Json
from nnilite_openpai._config import OpenPaiConfig

log = logging.getLogger(__name__)

_NAME = "OpenPAI"
_API = "/rest-server/api/v2"
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_FULL_S = 60.0
_NEWEST = 5000
_LARGEST_LOG = 64_000_000
_MOST_LOG_SERVERS = 100  # one at each node that runs trials

PaiJob = Mapping[str, Json]
"""All that PAI knows of a job; in a list, only its `jobStatus`."""


class Pai:
    """One user's view of one cluster.

    PAI counts list calls, submissions and all other calls separately, and asks for patience with one of these kinds: so
    each has a client of its own, and a used-up quota of submissions does not keep trials from being watched.
    """

    def __init__(self, config: OpenPaiConfig, call_s: float) -> None:
        self._config = config
        self._call_s = call_s
        self._user = config.username
        renew = self._log_in if config.password is not None else None
        self._credential = Credential(str(config.token or ""), renew=renew)
        self._rest = self._client(config.host)
        self._lists = self._client(config.host)
        self._submissions = self._client(config.host)
        self._full = (0.0, "")  # until when no job is submitted, and why
        self._refused: set[str] = set()  # jobs that PAI has refused for now
        self._log_servers: dict[str, PlatformHttp] = {}

    def _client(self, address: str, credential: Credential | None = None) -> PlatformHttp:
        return PlatformHttp(_NAME, address, self._config, credential or self._credential)

    async def close(self) -> None:
        for client in (self._rest, self._lists, self._submissions, *self._log_servers.values()):
            await client.close()

    async def _log_in(self) -> str:
        """Get a token for the password. Raises: AccessRefused, Outage."""
        body = urlencode({"username": self._user, "password": str(self._config.password)}).encode()
        place = f"{_API}/authn/basic/login"
        request = HttpRequest(
            "POST", place, body=body, headers=_FORM, repeat=True, anonymous=True, patience_s=self._call_s
        )
        try:
            token = _mapping((await self._rest.call(request)).json()).get("token")
        except (CallRefused, Missing) as error:
            problem = AccessRefused(f"{error}; check username and password")
            problem.status, problem.reply = error.status, error.reply
            raise problem from error
        if not isinstance(token, str) or not token:
            raise Outage(f"{_NAME} answered the login of {self._user} without a token")
        return token

    async def _get(self, path: str, query: Mapping[str, str | int] | None = None) -> Json:
        """Get an object. Raises: Problem."""
        return (await self._rest.call(HttpRequest("GET", path, query or {}, patience_s=self._call_s))).json()

    # ------------------------------------------------------------ the cluster

    async def info(self) -> Mapping[str, Json]:
        """Return what this server is. Raises: Problem."""
        request = HttpRequest("GET", f"{_API}/info", anonymous=True, patience_s=self._call_s)
        return _mapping((await self._rest.call(request)).json())

    async def list_virtual_clusters(self) -> Mapping[str, Json]:
        """Return the virtual clusters that this user may use. Raises: Problem."""
        return _mapping(await self._get(f"{_API}/virtual-clusters"))

    async def storages(self) -> list[str]:
        """Return the names of the storages that this user may mount. Raises: Problem."""
        found = _mapping(await self._get(f"{_API}/storages")).get("storages")
        return [str(entry["name"]) for entry in _check_mappings(found) if "name" in entry]

    # ------------------------------------------------------------ jobs

    async def submit(self, name: str, body: bytes) -> None:
        """Submit a job, unless there is one of this name. Raises: NoCapacity, Problem."""
        until, reason = self._full
        # PAI may have a job whose submission got no clear answer: ask for it.
        if time.monotonic() < until and name in self._refused:
            raise NoCapacity(reason)
        self._refused.discard(name)
        headers = {"Content-Type": "text/yaml"}
        request = HttpRequest("POST", f"{_API}/jobs", body=body, headers=headers, repeat=True, patience_s=self._call_s)
        try:
            await self._submissions.call(request)
        except Contradiction:
            log.debug("the job %s was already submitted", name)
        except Throttled as error:
            wait_s = error.retry_after_s or _FULL_S
            cause = error.reply or "too many were submitted; PAI's own limit is 60 an hour"
            reason = f"{_NAME} accepts no more jobs of {self._user} for now: {cause}"
            self._full = (time.monotonic() + wait_s, reason)
            self._refused.add(name)
            raise NoCapacity(reason) from error

    async def jobs(self, keyword: str) -> Mapping[str, PaiJob]:
        """Return the newest jobs with this text in their names, by their names. Raises: Problem."""
        query: dict[str, str | int] = {"username": self._user, "keyword": keyword, "limit": _NEWEST}
        query["order"] = "submissionTime,DESC"
        answer = await self._lists.call(HttpRequest("GET", f"{_API}/jobs", query, patience_s=self._call_s))
        found = answer.json()
        return {str(entry["name"]): {"jobStatus": entry} for entry in _check_mappings(found) if "name" in entry}

    async def job(self, name: str) -> PaiJob:
        """Return all of one job. Raises: Missing if there is none, Problem."""
        return _mapping(await self._get(self._place(name)))

    async def stop(self, name: str) -> None:
        """Ask for the end of a job; does nothing if it has ended. Raises: Missing if there is none, Problem."""
        place = f"{self._place(name)}/executionType"
        await self._rest.call(HttpRequest("PUT", place, body={"value": "STOP"}, patience_s=self._call_s))

    async def warnings(self, name: str) -> list[Mapping[str, Json]]:
        """Return the warnings of Kubernetes; nothing from servers that do not report them. Raises: Problem."""
        try:
            found = await self._get(f"{self._place(name)}/events", {"type": "Warning"})
        except Missing:
            return []
        return _check_mappings(_mapping(found).get("data") if isinstance(found, Mapping) else found)

    def page(self, name: str) -> str:
        """Return a job's page for browsers."""
        return f"{self._config.host.rstrip('/')}/job-detail.html?username={quote(self._user)}&jobName={quote(name)}"

    def _place(self, name: str) -> str:
        return f"{_API}/jobs/{quote(self._user)}~{quote(name)}"

    # ------------------------------------------------------------ logs

    async def log(self, name: str, task: str, stream: str) -> bytes:
        """Return the log of one task. Raises: Missing if there is none (any more), Problem.

        `task` is its part of the path: attempts/0/taskRoles/worker/taskIndex/0/attempts/0.
        """
        answer = await self._get(f"{self._place(name)}/{task}/logs", {"tail-mode": "false"})
        locations = _check_mappings(_mapping(answer).get("locations"))
        place = next((str(entry.get("uri")) for entry in locations if _names(entry, stream)), None)
        if not place:
            raise Missing(f"{_NAME} has no log of {name}")
        return await self._content(place)

    async def _content(self, place: str) -> bytes:
        """Return the content of a location; its query holds a token, or a signature."""
        try:
            parts = urlsplit(urljoin(f"{self._config.host}/", place))
        except ValueError:
            raise Outage(f"{_NAME} gives an address of a log that cannot be read") from None
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        for name in ("token", "sig"):
            hide(query.get(name, ""))
        origin = f"{parts.scheme}://{parts.netloc}"
        server = self._log_servers.get(origin)
        if server is None:
            try:
                server = self._log_servers[origin] = self._client(origin, Credential())
            except ConfigError as error:  # the value comes from PAI, not from the user
                raise Outage(str(error)) from error
            while len(self._log_servers) > _MOST_LOG_SERVERS:
                await self._log_servers.pop(next(iter(self._log_servers))).close()
        request = HttpRequest("GET", parts.path, query, anonymous=True, patience_s=self._call_s, max_bytes=_LARGEST_LOG)
        return (await server.call(request)).content


def _names(location: Mapping[str, Json], stream: str) -> bool:
    """Return whether a location is of this stream: `stdout` here, `user.pai.stdout` on older clusters."""
    name = str(location.get("name") or "")
    return name == stream or name.endswith(f".{stream}")


def _mapping(value: Any) -> Mapping[str, Json]:
    """Check that an answer is an object. Raises: Outage if it is not, such as one from a proxy."""
    if not isinstance(value, Mapping):
        raise Outage(f"{_NAME} did not answer with an object: {str(value)[:80]!r}")
    return value


def _check_mappings(value: Any) -> list[Mapping[str, Json]]:
    """Check that an answer is a list of objects. Raises: Outage if it is not."""
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise Outage(f"{_NAME} did not answer with a list of objects: {str(value)[:80]!r}")
    return value
