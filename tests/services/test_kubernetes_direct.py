"""The stand-in's API server answers its controllers, which call it directly, as it answers whoever comes by HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite.testing import eventually
from nnilite_kubernetes._api import ApiError
from platforms.kube.client import SECRETS, Api
from platforms.kube.direct import DirectCluster
from platforms.kube.kubeconfig import write_kubeconfig
from platforms.kube.registry import Registry
from platforms.kube.server import ApiServer
from platforms.kube.store import Store


@pytest.fixture
def server() -> Iterator[ApiServer]:
    server = ApiServer(Registry(Store(), {}, {}))
    server.listener.start()
    yield server
    if server.listener.listens:
        server.listener.stop()


@pytest.fixture(params=["direct", "http"])
def api(request: pytest.FixtureRequest, server: ApiServer, tmp_path: Path) -> Iterator[Api]:
    user = {"token": server.rights.admin}
    file = write_kubeconfig(tmp_path / "kubeconfig", {"server": server.listener.url}, user)
    api = Api(DirectCluster(file, server) if request.param == "direct" else file)
    yield api
    api.close()


def _secret(name: str) -> dict[str, dict[str, object]]:
    return {"metadata": {"name": name, "labels": {"mine": "yes"}}}


def test_objects_come_as_they_are_and_what_a_caller_does_to_them_stays_there(api: Api, server: ApiServer) -> None:
    body = _secret("a")
    created = api.create(SECRETS, "default", body)
    created["metadata"]["labels"].clear()
    body["metadata"]["labels"] = {}
    assert api.all(SECRETS, "default", labelSelector="mine=yes")[0]["metadata"]["name"] == "a"
    assert api.all(SECRETS, "default", labelSelector="mine=no") == []
    assert server.requests[0] == ("POST", "/api/v1/namespaces/default/secrets")
    assert api.get(SECRETS, "default", "none") is None
    assert api.delete(SECRETS, "default", "a")
    assert not api.delete(SECRETS, "default", "a")


def test_refusals_have_their_status_and_reason(api: Api) -> None:
    api.create(SECRETS, "default", _secret("a"))
    with pytest.raises(ApiError, match="already exists") as refusal:
        api.create(SECRETS, "default", _secret("a"))
    assert (refusal.value.status, refusal.value.reason, refusal.value.passing) == (409, "AlreadyExists", False)


def test_changes_are_heard_of_across_a_restart(api: Api, server: ApiServer) -> None:
    heard: list[str] = []
    copy = api.follow(SECRETS, "default", lambda: heard.append("changed"))
    api.create(SECRETS, "default", _secret("a"))
    eventually(lambda: copy.get("a") and heard)
    server.listener.stop()
    server.registry.store.wake()
    with pytest.raises(ApiError) as refusal:
        api.all(SECRETS, "default")
    assert refusal.value.passing
    eventually(lambda: copy.age_s > 0)
    server.registry.store.compact()
    server.listener.start()
    api.delete(SECRETS, "default", "a")
    eventually(lambda: not copy.all())
    api.leave("default")
