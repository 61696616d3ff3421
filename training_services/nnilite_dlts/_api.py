"""Make the calls to the dashboard of DLTS, check its answers and return plain values.

DLTS requires email and password in the query of each call, so a URL must never appear with its query: the messages of
`platform_http` leave queries out, and its log filter removes the password from what other libraries write.

It also answers 200 for refusals: then only the words of the answer show the refusal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from nnilite.errors import ServiceError
from nnilite.platform_http import HttpAnswer, HttpRequest, Missing, Outage, PlatformHttp, hide
from nnilite.records import Json
from nnilite_dlts._config import DltsConfig

DltsJob = Mapping[str, Json]
"""A job in DLTS's answers."""
_NULL_LOG: tuple[Mapping[str, str], str | None] = ({}, None)


class DltsApi:
    """One user's view of one cluster. Every call raises: Problem."""

    def __init__(self, config: DltsConfig, call_s: float) -> None:
        self._call_s = call_s
        self.page = config.dashboard.rstrip("/").removesuffix("/api")
        self._http = PlatformHttp("DLTS", self.page, config)
        self._login = {"email": config.email, "password": str(config.password)}
        hide(self._login["password"])
        self._name = quote(config.cluster, safe="")
        self._cluster = f"clusters/{self._name}"
        self._team = f"teams/{quote(config.team, safe='')}"

    async def team(self) -> Mapping[str, Json]:
        """Return the resources of the team in this cluster. Raises: Missing if there is no such team or cluster."""
        answer = await self._get(f"{self._team}/{self._cluster}")
        found = answer.json()
        if found is None:
            raise Missing("DLTS does not know the team")
        return _read_object(answer, found)

    async def submit(self, params: Mapping[str, Json]) -> Mapping[str, Json]:
        """Submit a job; return `jobId` or `error`."""
        answer = await self._call(HttpRequest("POST", self._jobs_path, body=dict(params)))
        return _read_object(answer, answer.json())

    @property
    def _jobs_path(self) -> str:
        return f"{self._cluster}/jobs"

    def submission(self) -> str:
        """Return the address to which jobs are submitted, without the login."""
        return f"{self.page}/api/{self._jobs_path}"

    def make_job_page(self, job_id: str) -> str:
        """Return the page of a job for browsers."""
        return f"{self.page}/jobs-v2/{self._name}/{quote(job_id, safe='')}"

    async def jobs(self, ended: int) -> dict[str, DltsJob]:
        """Return the user's jobs by their ids: all that have not ended, and `ended` of the others."""
        answer = await self._get(f"v2/{self._cluster}/{self._team}/jobs", {"limit": ended})
        found = answer.json()
        if not isinstance(found, list):
            raise Outage(f"{answer.place} did not answer with a list of jobs")
        # Where its database fails, DLTS lists `null` four times: such jobs are asked for one by one.
        known = [job for job in found if isinstance(job, dict) and isinstance(job.get("jobId"), str)]
        return {job["jobId"]: job for job in known}

    async def job(self, job_id: str) -> DltsJob:
        """Return one job. Raises: Missing if DLTS does not know it, or cannot look it up now: it does not say which."""
        answer = await self._get(f"v2/{self._job(job_id)}")
        found = _read_object(answer, answer.json())
        if not found:
            raise Missing(f"DLTS does not know the job {job_id}")
        return found

    async def message(self, job_id: str) -> str:
        """Return why a job has failed."""
        try:
            answer = await self._get(f"{self._job(job_id)}/status")
        except Missing as error:
            return error.reply  # Some versions report errors in this way.
        return str(_read_object(answer, answer.json()).get("message") or "")

    async def kill(self, job_id: str) -> str:
        """Ask for a job's end; return DLTS's answer."""
        answer = await self._call(HttpRequest("PUT", f"{self._job(job_id)}/status", body={"status": "killing"}))
        return str(_read_object(answer, answer.json()).get("result") or "")

    async def log(self, job_id: str, cursor: str | None) -> tuple[Mapping[str, str], str | None]:
        """Return a page of the log by pods, and the cursor of the next page; no text where there is none (yet)."""
        try:
            answer = await self._get(f"{self._job(job_id)}/log", {"cursor": cursor} if cursor else None)
        except Missing:
            return _NULL_LOG
        found = _read_object(answer, answer.json())
        text, following = found.get("log"), found.get("cursor")
        pods = text if isinstance(text, dict) else {"": text}
        return {str(pod): part for pod, part in pods.items() if isinstance(part, str)}, (
            following if isinstance(following, str) else None
        )

    async def endpoints(self, job_id: str) -> list[Mapping[str, Json]]:
        """Return the ports of a job that can be reached from outside of its container."""
        answer = await self._get(f"{self._job(job_id)}/endpoints")
        found = answer.json()
        if not isinstance(found, list):
            raise Outage(f"{answer.place} did not answer with a list of endpoints")
        return [entry for entry in found if isinstance(entry, dict)]

    async def open_endpoint(self, job_id: str, name: str, port: int) -> None:
        """Ask DLTS to open a port of a job."""
        body = {"endpoints": [{"name": name, "podPort": port}]}
        await self._call(HttpRequest("POST", f"{self._job(job_id)}/endpoints", body=body, repeat=True))

    async def close(self) -> None:
        await self._http.close()

    def _job(self, job_id: str) -> str:
        return f"{self._cluster}/jobs/{quote(job_id, safe='')}"

    async def _get(self, path: str, query: Mapping[str, str | int] | None = None) -> HttpAnswer:
        return await self._call(HttpRequest("GET", path, query or {}))

    async def _call(self, request: HttpRequest) -> HttpAnswer:
        return await self._http.call(
            HttpRequest(
                request.method,
                f"api/{request.path}",
                {**request.query, **self._login},
                request.body,
                repeat=request.repeat,
                patience_s=self._call_s,
            )
        )


def _read_object(answer: HttpAnswer, content: Any) -> Mapping[str, Json]:
    """Check that an answer is an object. Raises: Outage."""
    if not isinstance(content, dict):
        raise Outage(f"{answer.place} did not answer with an object")
    return content


def parsed(text: Json) -> Mapping[str, Json]:
    """Parse the JSON object in a text, which DLTS has in its answers. Raises: ServiceError."""
    try:
        found = json.loads(text) if isinstance(text, str) and text else {}
    except (ValueError, RecursionError) as error:
        raise ServiceError(f"DLTS answered with text instead of JSON: {text!r:.80}") from error
    return found if isinstance(found, dict) else {}
