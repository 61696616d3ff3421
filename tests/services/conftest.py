"""The clusters and benches of the tests of nnilite_kubernetes, and the stand-ins of OpenPAI, DLTS, Azure and
Determined.

A test that takes `cluster` (or `open_bench`) runs on the stand-in, and on a real kube-apiserver: every day if it is
marked `everywhere`, else as a `long` test. With NNILITE_TEST_KUBECONFIG it runs on that cluster, and nowhere else.
Modules say by the fixture `platform` which service they test, and what the cluster has to have for it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from pathlib import Path

import pytest
import yaml

import nnictl_runs
from platforms.aml import azurite as azurite_program
from platforms.aml.bench import GIVEN as GIVEN_WORKSPACE
from platforms.aml.cloud import StandInCloud
from platforms.aml.contract import AzureContract
from platforms.determined.bench import DeterminedBench, maker
from platforms.determined.master import Master
from platforms.dlts.bench import DltsBench
from platforms.dlts.dashboard import PASSWORD, Dashboard
from platforms.kube import apiserver
from platforms.kube.bench import KubeBench, Platform
from platforms.kube.cluster import Cluster, Given, RealServer, StandIn
from platforms.kube.faults import Faults
from platforms.pai.bench import bench_on
from platforms.pai.server import FakePai

GIVEN = os.environ.get("NNILITE_TEST_KUBECONFIG")
_REAL = pytest.param("kube-apiserver", marks=[pytest.mark.real, pytest.mark.xdist_group("kube-apiserver")])
_CLUSTERS = ["given"] if GIVEN else ["stand-in", _REAL]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        on = getattr(item, "callspec", None) and item.callspec.params.get("cluster")
        if on == "kube-apiserver" and not item.get_closest_marker("everywhere"):
            item.add_marker(pytest.mark.long)
        if "cluster" in item.fixturenames:  # a real server, or the certificates of the stand-in, by processes
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="session")
def kube_apiserver(tmp_path_factory):
    """A real one, for all tests."""
    reason = apiserver.missing()
    if reason:
        pytest.skip(reason)
    server = apiserver.KubeApiserver(tmp_path_factory.mktemp("kube") / "apiserver")
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(params=_CLUSTERS)
def cluster(request, tmp_path, platform):
    with _cluster(request, tmp_path / "cluster", platform) as cluster:
        yield cluster


def _cluster(request: pytest.FixtureRequest, folder: Path, platform: Platform) -> Cluster:
    if request.param == "stand-in":
        return StandIn(folder, platform.operators)
    if request.param == "kube-apiserver":
        return RealServer(request.getfixturevalue("kube_apiserver"), folder, platform.operators)
    given = Given(Path(GIVEN), folder, platform.operators)
    if given.lacks():
        pytest.skip(f"the cluster has no {', '.join(given.lacks())}")
    return given


@pytest.fixture
def machinery(cluster):
    """For what only nodes and controllers of ours can be told to do."""
    if not hasattr(cluster, "machinery"):
        pytest.skip("the cluster has nodes and controllers of its own")
    return cluster.machinery


@pytest.fixture
def this_machine(cluster):
    """For trials that meet the test in files or at loopback."""
    if not cluster.here:
        pytest.skip("the cluster's pods run elsewhere")


@pytest.fixture
def faults(cluster):
    """What can go wrong on the way to the server."""
    with Faults(cluster.kubeconfig(), cluster.folder) as faults:
        yield faults


@pytest.fixture
def nnictl(tmp_path, monkeypatch):
    """Runs `nnictl` with a home of its own; its standard output, or its complaint."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))

    def run(*words: str, code: int = 0) -> str:
        ran = nnictl_runs.nnictl(*words)
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr if code else ran.stdout

    yield run
    run("stop", "--all")


@pytest.fixture
def experiment(kubeflow_experiment, cluster):
    """The same, of plain Jobs."""

    def write(command: str, **more) -> str:
        return kubeflow_experiment(command, {"platform": "kubernetes", "dockerImage": cluster.image}, **more)

    return write


@pytest.fixture
def kubeflow_experiment(tmp_path, cluster):
    """Writes the config of a search of one trial on this cluster, whose code directory is `code`; its path."""

    def write(command: str, section: dict, **more) -> str:
        (tmp_path / "code").mkdir(exist_ok=True)
        place = {
            "platform": "kubeflow",
            "nniManagerIp": "127.0.0.1",
            "kubeconfig": str(cluster.kubeconfig()),
            "namespace": cluster.namespace,
        }
        config = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": command,
            "trialCodeDirectory": str(tmp_path / "code"),
            "trialConcurrency": 1,
            "maxTrialNumber": 1,
            "tuner": {"name": "Random"},
            "trainingService": {**place, **section},
            **more,
        }
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
        return str(tmp_path / "config.yaml")

    return write


@pytest.fixture
def open_bench(tmp_path, cluster, platform):
    """Opens a bench with these fields of the section; in the end its jobs are removed."""
    opened: list[KubeBench] = []

    def make(kubeconfig: Path | None = None, **fields) -> KubeBench:
        bench = KubeBench(tmp_path, platform.maker(cluster, kubeconfig, **fields), cluster)
        opened.append(bench)
        return bench.__enter__()

    yield make
    for bench in opened:
        bench.__exit__()


@pytest.fixture
def pai(tmp_path):
    """A cluster of OpenPAI; with it ends the test of whether all calls were within the contract."""
    with FakePai(tmp_path / "the cluster's $HOME").running() as found:
        yield found


@pytest.fixture
def open_pai(pai, tmp_path):
    """Opens the service on that cluster, with other fields; its bench."""
    with contextlib.ExitStack() as stack:
        yield lambda **fields: stack.enter_context(bench_on(pai, tmp_path, **fields))


@pytest.fixture
def dashboard(tmp_path):
    """A dashboard of DLTS; with it ends the test of whether all calls were within the contract."""
    with Dashboard(tmp_path / "dlts") as found:
        yield found
    assert found.broken + found.cluster.broken == []


@pytest.fixture
def open_dlts(tmp_path, dashboard):
    """Opens a bench whose jobs have this in their specifications, and whose section has these fields."""
    opened: list[DltsBench] = []

    def make(common=None, **fields) -> DltsBench:
        opened.append(DltsBench(tmp_path, dashboard, {"linger_s": 1, **(common or {})}, **fields))
        return opened[-1].__enter__()

    yield make
    dashboard.steps, dashboard.password = [], PASSWORD
    for bench in opened:
        bench.__exit__()


@pytest.fixture(scope="session")
def azurite(tmp_path_factory):
    """A storage account for all tests."""
    if reason := azurite_program.missing():
        pytest.skip(reason)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("azure.ai.ml")  # takes seconds, which belong to no test
    with azurite_program.Azurite().running(tmp_path_factory.mktemp("azurite")) as found:
        yield found


@pytest.fixture(scope="session")
def azure_contract():
    return AzureContract()


@pytest.fixture
def azure(tmp_path, azurite, azure_contract, monkeypatch):
    """A workspace; with it ends the test of whether all calls were within the contract."""
    if GIVEN_WORKSPACE:
        pytest.skip("a workspace of Azure does not break when it is told to")
    with StandInCloud(tmp_path / "azure", azurite, azure_contract) as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def place(request):
    """The stand-in, or None for Azure itself, where NNILITE_TEST_AML names a workspace."""
    return None if GIVEN_WORKSPACE else request.getfixturevalue("azure")


@pytest.fixture
def master(tmp_path):
    with Master(tmp_path / "cluster") as master:
        yield master


@pytest.fixture
def open_determined(tmp_path, master):
    """Opens a bench with these parts of all specifications, and these fields of the section."""
    benches: list[DeterminedBench] = []

    def make(common=None, /, **fields) -> DeterminedBench:
        benches.append(DeterminedBench(tmp_path, maker(master, **fields), **(common or {})))
        return benches[-1].__enter__()

    yield make
    for bench in benches:
        bench.__exit__()
