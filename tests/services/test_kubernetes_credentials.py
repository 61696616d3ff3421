"""Credentials that expire, and programs that sign in: a kubeconfig is read again where the server asks who we are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite_kubernetes import KubernetesConfig, KubernetesService
from nnilite_kubernetes._api import ApiError, connect
from platforms.kube.bench import KubeBench, Platform
from platforms.kube.cluster import IMAGE, StandIn
from platforms.kube.kubeconfig import write_kubeconfig

pytestmark = pytest.mark.process

_NOWHERE = {"server": "http://127.0.0.1:9"}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    """Credentials that did not help are loaded again at once."""
    monkeypatch.setattr("nnilite_kubernetes._kube_credentials._PAUSE_S", 0.0)


@pytest.fixture
def cluster(tmp_path):
    with StandIn(tmp_path / "cluster") as cluster:
        yield cluster


class Login:
    """A kubeconfig whose token, in itself or in a file of its own, another program renews."""

    def __init__(self, cluster: StandIn, folder: Path, by_file: bool) -> None:
        self.kubeconfig = folder / "kubeconfig.renewed"
        self._cluster = cluster
        self._file = folder / "token" if by_file else None
        self._token = ""
        self.renew()

    def renew(self) -> None:
        rules = ("batch", ["jobs"], _ALL), ("", ["secrets"], _ALL), ("", ["pods", "pods/log"], _ALL)
        user = yaml.safe_load(self._cluster.limited(*rules).read_text())["users"][0]["user"]
        self._token = user["token"]
        if self._file is not None:
            self._file.write_text(self._token)
            user = {"tokenFile": str(self._file)}
        write_kubeconfig(self.kubeconfig, {"server": self._cluster.server.listener.url}, user)

    def expire(self) -> None:
        self._cluster.server.rights.revoke(self._token)


_ALL = ["create", "get", "list", "watch", "patch", "delete"]
both = pytest.mark.parametrize("by_file", [False, True], ids=["token", "tokenFile"])


@both
def test_a_token_that_was_renewed_is_read_when_the_old_one_has_expired(cluster, tmp_path, by_file):
    login = Login(cluster, tmp_path, by_file)
    client = connect(str(login.kubeconfig), None)
    login.expire()
    with pytest.raises(ApiError, match=r"401.*: Unauthorized; sign in again: .*kubeconfig.renewed is read at each try"):
        client.call("GET", "/version")
    login.renew()
    assert client.call("GET", "/version")
    client.close()


@both
def test_trials_go_on_when_somebody_has_signed_in_again(cluster, tmp_path, by_file):
    login = Login(cluster, tmp_path, by_file)
    maker = Platform(KubernetesService, KubernetesConfig, {"docker_image": IMAGE}).maker(cluster, login.kubeconfig)
    with KubeBench(tmp_path, maker, cluster) as bench:
        assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED
        login.expire()
        job = bench.job("true")
        assert "sign in again" in str(bench.refusal(bench.service.submit(job)))
        login.renew()
        assert bench.wait(bench.submit(job)).state is JobState.SUCCEEDED


def test_a_kubeconfig_that_is_just_being_written_is_not_taken(cluster, tmp_path):
    login = Login(cluster, tmp_path, False)
    client = connect(str(login.kubeconfig), None)
    login.expire()
    login.kubeconfig.write_text("users: [{")
    with pytest.raises(ApiError, match="sign in again"):
        client.call("GET", "/version")
    login.renew()
    assert client.call("GET", "/version")
    client.close()


def exec_user(command, **fields):
    section = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": ["-c", command]}
    return {"exec": {**section, **fields}}


def test_a_program_that_asks_on_a_terminal_is_refused_at_the_start(tmp_path):
    user = exec_user("", interactiveMode="Always")
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", _NOWHERE, user)
    with pytest.raises(ConfigError, match=r"asks on a terminal \(interactiveMode: Always\)"):
        connect(str(kubeconfig), None)


def test_a_program_that_waits_for_an_answer_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("nnilite_kubernetes._kube_credentials._LOAD_S", 0.5)
    go_on = tmp_path / "go on"
    wait = f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.02)"
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", _NOWHERE, exec_user(wait, interactiveMode="IfAvailable"))
    with pytest.raises(ConfigError, match=r"signing in as .* says has not ended within 0.5 s"):
        connect(str(kubeconfig), None)
    go_on.touch()


def test_a_program_that_signs_in_without_questions_is_run_again_when_its_token_has_expired(cluster, tmp_path):
    login, runs = Login(cluster, tmp_path, True), tmp_path / "runs"
    answer = (
        "import json\n"
        f"open({str(runs)!r}, 'a').write('x')\n"
        f"status = {{'token': open({str(tmp_path / 'token')!r}).read()}}\n"
        "kind = {'kind': 'ExecCredential', 'apiVersion': 'client.authentication.k8s.io/v1'}\n"
        "print(json.dumps({**kind, 'status': status}))"
    )
    server = {"server": cluster.server.listener.url}
    user = exec_user(answer, interactiveMode="Never")
    client = connect(str(write_kubeconfig(tmp_path / "kubeconfig.exec", server, user)), None)
    assert client.call("GET", "/version")
    login.expire()
    login.renew()
    assert client.call("GET", "/version")
    assert runs.read_text() == "xx"
    client.close()
