"""Make the calls to Determined's master that are needed, and check the answers as far as they are used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nnilite.platform_http import Credential, HttpAnswer, HttpRequest, Outage, PlatformHttp
from nnilite.records import Json
from nnilite_determined._config import DeterminedConfig

_PAGE = 200
_SUBMIT_TIMEOUT_S = 55.0  # a context directory may be large; the engine gives up a call after 60 s
_LOG_BYTES = 64_000_000


class DeterminedApi:
    """One master. All calls raise Problem."""

    def __init__(self, config: DeterminedConfig, call_s: float) -> None:
        self._config = config
        self._call_s = call_s
        renew = self._log_in if config.password is not None else None
        self._http = PlatformHttp("Determined", config.master, config, Credential(str(config.token or ""), renew))

    async def close(self) -> None:
        await self._http.close()

    async def _log_in(self) -> str:
        """Get a new token: a session lasts seven days."""
        body = {"username": self._config.username, "password": str(self._config.password or ""), "isHashed": False}
        answer = await self._call(HttpRequest("POST", "/api/v1/auth/login", body=body, anonymous=True, repeat=True))
        return str(_read_field(answer, "token", str))

    async def user(self) -> Mapping[str, Any]:
        """Return the user who is logged in."""
        return dict(_read_field(await self._get("/api/v1/auth/user"), "user", dict))

    async def list_resource_pools(self) -> list[Mapping[str, Any]]:
        return _read_items(await self._get("/api/v1/resource-pools"), "resourcePools")

    async def workspaces(self, name: str) -> list[Mapping[str, Any]]:
        """Return the workspaces of exactly this name."""
        return _read_items(await self._get("/api/v1/workspaces", {"nameCaseSensitive": name}), "workspaces")

    async def experiments(self, query: Mapping[str, str | int]) -> list[Mapping[str, Any]]:
        """Return all experiments that fit, in as few calls as possible."""
        experiments: list[Mapping[str, Any]] = []
        while True:
            page = {
                "sortBy": "SORT_BY_ID",
                "orderBy": "ORDER_BY_ASC",
                "limit": _PAGE,
                "offset": len(experiments),
                **query,
            }
            items = _read_items(await self._get("/api/v1/experiments", page), "experiments")
            # A proxy may answer each page with the same one.
            if items and experiments and items[0].get("id") == experiments[-len(items)].get("id"):
                raise Outage(f"{self._config.master} answers with the same experiments again and again")
            experiments += items
            if len(items) < _PAGE:
                return experiments

    async def experiment(self, number: int) -> Mapping[str, Any]:
        return dict(_read_field(await self._get(f"/api/v1/experiments/{number}"), "experiment", dict))

    async def submit(self, body: Json) -> Mapping[str, Any]:
        """Create an experiment, or with `validateOnly` ask whether it could be created."""
        request = HttpRequest("POST", "/api/v1/experiments", body=body, timeout_s=_SUBMIT_TIMEOUT_S)
        return dict(_read_field(await self._call(request), "experiment", dict))

    async def task(self, number: int) -> str:
        """Return the task of an experiment's only trial; "" before there is one."""
        tasks = [task for one in await self.trials(number) for task in (one.get("taskIds") or [one.get("taskId")])]
        return next((str(task) for task in tasks if task), "")

    async def trials(self, number: int) -> list[Mapping[str, Any]]:
        return _read_items(await self._get(f"/api/v1/experiments/{number}/trials"), "trials")

    async def allocations(self, task: str) -> list[Mapping[str, Any]]:
        """Return the containers that a task has had, the latest last."""
        found = _read_field(await self._get(f"/api/v1/tasks/{task}"), "task", dict).get("allocations")
        known = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        return sorted(known, key=lambda one: str(one.get("startTime") or "~"))

    async def checkpoints(self, trial: int) -> list[Mapping[str, Any]]:
        """Return Determined's checkpoints that are complete."""
        query: dict[str, str | int] = {"states": "STATE_COMPLETED"}
        return _read_items(await self._get(f"/api/v1/trials/{trial}/checkpoints", query), "checkpoints")

    async def queue(self) -> list[Mapping[str, Any]]:
        """Return all jobs that wait for slots."""
        return _read_items(await self._get("/api/v1/job-queues", {"limit": 1000}), "jobs")

    async def logs(self, task: str, query: Mapping[str, str | int]) -> list[Mapping[str, Any]]:
        """Return lines of a task's log. The answer is a stream of JSON objects, one a line."""
        query = {"orderBy": "ORDER_BY_ASC", "limit": 0, **query}
        answer = await self._call(HttpRequest("GET", f"/api/v1/tasks/{task}/logs", query, max_bytes=_LOG_BYTES))
        # Beside the event loop, since a trial may print a million lines.
        return await asyncio.to_thread(_read_lines, answer)

    async def cancel(self, number: int) -> None:
        """End the trial softly."""
        await self._do(f"/api/v1/experiments/{number}/cancel")

    async def kill(self, number: int) -> None:
        await self._do(f"/api/v1/experiments/{number}/kill")

    async def archive(self, number: int) -> None:
        await self._do(f"/api/v1/experiments/{number}/archive")

    async def delete(self, number: int) -> None:
        await self._call(HttpRequest("DELETE", f"/api/v1/experiments/{number}"))

    async def set_labels(self, number: int, labels: list[str]) -> None:
        body = {"id": number, "labels": labels}
        await self._call(HttpRequest("PATCH", f"/api/v1/experiments/{number}", body=body, repeat=True))

    async def _get(self, path: str, query: Mapping[str, str | int] | None = None) -> HttpAnswer:
        return await self._call(HttpRequest("GET", path, query or {}))

    async def _do(self, path: str) -> None:
        await self._call(HttpRequest("POST", path, repeat=True))

    async def _call(self, request: HttpRequest) -> HttpAnswer:
        return await self._http.call(replace(request, patience_s=self._call_s))


def _read_lines(answer: HttpAnswer) -> list[Mapping[str, Any]]:
    """Return the lines of a log. Raises: Outage."""
    found: list[Mapping[str, Any]] = []
    # Not at what else Python takes for line ends, as U+0085: a trial may print that, and JSON may have it as it is.
    for line in answer.content.split(b"\n"):
        if not line.strip():
            continue
        try:
            found.append(dict(json.loads(line)["result"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            start = line[:200].decode("utf-8", "replace")
            raise Outage(f"{answer.place} broke off in the middle of the log: {start}") from None
    return found


def _read_field(answer: HttpAnswer, name: str, kind: type) -> Any:
    content = answer.json()
    if not isinstance(content, dict) or not isinstance(content.get(name), kind):
        raise Outage(f"{answer.place} did not answer with {name!r}; check that `master` is the address of Determined")
    return content[name]


def _read_items(answer: HttpAnswer, name: str) -> list[Mapping[str, Any]]:
    return [dict(item) for item in _read_field(answer, name, list) if isinstance(item, dict)]
