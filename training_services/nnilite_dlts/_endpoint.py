"""Find where trials reach a manager that is itself a job of DLTS.

Trials reach it at its node's name, by a port that the dashboard opens on request: one of 40000 to 49999, since DLTS
opens no others.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from nnilite.errors import ConfigError, ServiceError
from nnilite.records import Json
from nnilite.services.callback_address import CallbackAddress, with_host
from nnilite_dlts._api import DltsApi

_PORTS = range(40000, 50000)
_NAME = "nnilite"
_PATIENCE_S = 120.0
_TURN_S = 1.0


def own_job() -> str:
    """Return the id of the job that this program runs in, "" if it is not in one."""
    return os.environ.get("DLTS_JOB_ID") or os.environ.get("DLWS_JOB_ID") or ""


class DltsCallbackAddress(CallbackAddress):
    """Where jobs reach a manager that may be a job of DLTS itself: DLTS opens a port of that when trials need it."""

    def check(self) -> None:
        if not own_job():
            super().check()


async def open_address(api: DltsApi, url: str, job_id: str, patience_s: float = _PATIENCE_S) -> str:
    """Return the manager's URL where it is a job of DLTS. Raises: ConfigError, ServiceError."""
    port = urlsplit(url).port or 0
    if port not in _PORTS:
        raise ConfigError(
            f"the manager runs in a job of DLTS and listens on port {port}, but DLTS opens only ports from "
            f"{_PORTS.start} to {_PORTS.stop - 1}: start it with --host 0.0.0.0 --port {_PORTS.start}, or set "
            "callback: log"
        )
    deadline = time.monotonic() + patience_s
    asked = False
    while True:
        endpoints = [entry for entry in await api.endpoints(job_id) if entry.get("podPort") == port]
        if endpoints and endpoints[0].get("status") == "running":
            return with_host(url, *_place(endpoints[0], port))
        if not endpoints and not asked:
            await api.open_endpoint(job_id, _NAME, port)
            asked = True
        if time.monotonic() > deadline:
            raise ServiceError(f"DLTS did not open port {port} of the manager's job {job_id} within {patience_s:g} s")
        await asyncio.sleep(_TURN_S)


def _place(entry: Mapping[str, Json], port: int) -> tuple[str, int]:
    """Return host and port of an endpoint. Raises: ServiceError."""
    host, domain, given = entry.get("nodeName"), entry.get("domain"), entry.get("port")
    if not isinstance(host, str) or not host:
        raise ServiceError(f"DLTS's answer does not name the node on which it opened port {port}")
    if isinstance(domain, str) and domain and "." not in host:
        host = f"{host}.{domain}"
    return host, given if isinstance(given, int) and given else port
