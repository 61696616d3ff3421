"""Make the calls to Ray's Jobs REST interface that are needed, and check the answers as far as they are used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nnilite.errors import ConfigError, Place
from nnilite.platform_http import Credential, HttpAnswer, HttpRequest, Missing, Outage, PlatformHttp, hide
from nnilite.records import Json
from nnilite_ray._config import RayConfig

_UPLOAD_TIMEOUT_S = 55.0  # a package may be large; the engine gives up a call after 60 s
_LOG_TIMEOUT_S = 15.0
_LOG_BYTES = 64_000_000
_EXISTS = "already exists"


class RayApi:
    """One cluster. All tries of a call together take `patience_s` at most. All calls raise Problem."""

    def __init__(self, config: RayConfig, patience_s: float, log_patience_s: float) -> None:
        self._patience_s, self._log_patience_s = patience_s, log_patience_s
        self._token_file = config.token_file
        self._headers = {name: str(value) for name, value in config.headers.items()}
        for value in (str(config.token or ""), *self._headers.values()):
            hide(value)
        renew = self._read_token if config.token_file is not None else None
        self._http = PlatformHttp("Ray", config.address, config, Credential(str(config.token or ""), renew))

    async def close(self) -> None:
        await self._http.close()

    async def _read_token(self) -> str:
        """Return the token as it is in its file now. Raises: ConfigError."""
        try:
            token = Path(str(self._token_file)).read_text("ascii").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"the token cannot be read: {error}", Place(field="tokenFile")) from error
        return token

    async def version(self) -> Mapping[str, Any]:
        """Return the answer of `api/version`: `version`, `ray_version`, and the `session_name` if it has one."""
        return _read_object(await self._call("GET", "/api/version"), "ray_version", str)

    async def jobs(self) -> dict[str, Mapping[str, Any]]:
        """Return all jobs that were submitted to the cluster, by their submission ids."""
        answer = await self._call("GET", "/api/jobs/")
        found = answer.json()
        if not isinstance(found, list):
            raise Outage(f"{answer.place} did not answer with a list of jobs; check that `address` is that of Ray")
        return {str(one["submission_id"]): one for one in found if isinstance(one, dict) and one.get("submission_id")}

    async def job(self, name: str) -> Mapping[str, Any] | None:
        """Return one job; None: the cluster does not know it."""
        try:
            return _read_object(await self._call("GET", _job(name)), "status", str)
        except Missing:
            return None

    async def submit(self, body: Mapping[str, Json]) -> None:
        """Start a job. An existing job of this name is left alone."""
        try:
            await self._call("POST", "/api/jobs/", body=dict(body))
        except Outage as problem:
            if problem.status != 500 or _EXISTS not in problem.reply:
                raise

    async def stop(self, name: str) -> None:
        """Ask for the end of a job; harmless if it has ended or does not exist."""
        try:
            await self._call("POST", f"{_job(name)}/stop", repeat=True)
        except Missing:
            return

    async def delete(self, name: str) -> None:
        """Delete an ended job from Ray's records."""
        try:
            await self._call("DELETE", _job(name), patience_s=0)
        except Missing:
            return

    async def log(self, name: str) -> str:
        """Return the log of a job from its beginning, as Ray returns no parts of it.

        "" for a job that has not started.
        """
        try:
            limits = {"max_bytes": _LOG_BYTES, "timeout_s": _LOG_TIMEOUT_S, "patience_s": self._log_patience_s}
            answer = await self._call("GET", f"{_job(name)}/logs", **limits)
        except Missing:
            return ""
        return str(_read_object(answer, "logs", str)["logs"])

    async def has_package(self, name: str) -> bool:
        """Return whether Ray has a package.

        It keeps it for another ten minutes then, also without a job that uses it.
        """
        try:
            await self._call("GET", _package(name))
        except Missing:
            return False
        return True

    async def upload(self, name: str, file: Path) -> None:
        await self._call("PUT", _package(name), body=file, timeout_s=_UPLOAD_TIMEOUT_S, patience_s=_UPLOAD_TIMEOUT_S)

    async def usage(self) -> dict[str, Mapping[str, Any]]:
        """Return, by nodes, the amount in use and the total of each resource, as [used, total]."""
        answer = await self._call("GET", "/api/cluster_status")
        found: Any = answer.json()
        for name in ("data", "clusterStatus", "loadMetricsReport", "usageByNode"):
            found = found.get(name) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            raise Outage(f"{answer.place} did not answer with the resources in use")
        return {str(node): given for node, given in found.items() if isinstance(given, dict)}

    async def _call(self, method: str, path: str, **more: Any) -> HttpAnswer:
        given = {"patience_s": self._patience_s, "headers": self._headers, **more}
        return await self._http.call(HttpRequest(method, path, **given))


def _job(name: str) -> str:
    return f"/api/jobs/{quote(name, safe='')}"


def _package(name: str) -> str:
    return f"/api/packages/gcs/{quote(name, safe='')}"


def _read_object(answer: HttpAnswer, name: str, kind: type) -> Mapping[str, Any]:
    """Check that an answer is an object with this field."""
    content = answer.json()
    if not isinstance(content, dict) or not isinstance(content.get(name), kind):
        raise Outage(f"{answer.place} did not answer with {name!r}; check that `address` is that of Ray's dashboard")
    return content
