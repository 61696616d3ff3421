"""The stand-in's API server, called within its process: by controllers, the node and the test.

They ask more than the service under test does, which comes by HTTP: there both sides of an exchange take this process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnilite_kubernetes._api import ApiError, Cluster, Resource
from nnilite_kubernetes._kube_credentials import Credentials
from platforms.kube.registry import Refusal
from platforms.kube.server import ApiServer


class DirectCluster(Cluster):
    """As the administrator. Logs and commands still come by HTTP."""

    def __init__(self, kubeconfig: Path, server: ApiServer) -> None:
        super().__init__(Credentials(str(kubeconfig), None))
        self._server = server

    def call(
        self, method: str, path: str, body: Any = None, kind: str = "json", query: Mapping[str, str] | None = None
    ) -> Any:
        self._need_server()
        token = self._server.rights.admin
        try:
            answer = self._server.answer(token, method, path, dict(query or {}), _copied(body))
        except Refusal as refusal:
            raise _error(refusal, method, path) from None
        return _copied(answer)

    def watch(self, resource: Resource, namespace: str, selector: str, version: str) -> Any:
        self._need_server()
        query = {"labelSelector": selector, "resourceVersion": version}
        try:
            return _Changes(self._server, resource.path(namespace), query)
        except Refusal as refusal:
            raise _error(refusal, "GET", resource.path(namespace)) from None

    def _need_server(self) -> None:
        if self._closed.is_set() or not self._server.listener.listens:
            raise ApiError(f"the API server {self.host} cannot be reached: it does not listen")


class _Changes:
    """One watch, as Watch of the plugin."""

    def __init__(self, server: ApiServer, path: str, query: dict[str, str]) -> None:
        self._server = server
        self._stopped = False
        self._news = server.changes(server.rights.admin, path, query, self._is_over)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        try:
            for kind, content in self._news:
                if self._is_over():
                    return
                yield kind, _copied(content)
        except LookupError:
            raise ApiError("too old resource version", 410, "Expired") from None

    def _is_over(self) -> bool:
        return self._stopped or not self._server.listener.listens

    def stop(self) -> None:
        self._stopped = True
        self._server.registry.store.wake()


def _copied(content: Any) -> Any:
    """What is left of something on its way through JSON; nobody else has it."""
    return None if content is None else json.loads(json.dumps(content))


def _error(refusal: Refusal, method: str, path: str) -> ApiError:
    text = f"the API server refuses {method} {path} ({refusal.status}): {refusal}"
    return ApiError(text, refusal.status, refusal.reason)
