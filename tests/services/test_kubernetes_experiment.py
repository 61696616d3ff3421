"""Whole experiments on a cluster: a real manager, the example's files, pods that run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubernetes.config import kube_config

import example_runs
from function_programs import check_function_on
from nnilite_kubernetes import KubernetesConfig, KubernetesService, _kube_credentials
from platforms.kube.bench import Platform
from platforms.kube.cluster import IMAGE
from platforms.kube.kubeconfig import write_kubeconfig

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "config.yaml"


@pytest.fixture
def platform():
    return Platform(KubernetesService, KubernetesConfig, {"docker_image": IMAGE})


@pytest.fixture
def create(tmp_path, monkeypatch):
    """Runs `nnictl create` on a config; its standard output, or its complaint."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))

    def one(config: Path, kubeconfig: Path, *more: str, code: int = 0) -> str:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        # The client has read the variable when it was imported.
        for module in (_kube_credentials, kube_config):
            monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
        return example_runs.create(config, *more, code=code)

    return one


@pytest.fixture
def adapted(tmp_path, cluster):
    """Writes the example for this cluster, with other fields; the file."""

    def one(service=None, **fields) -> Path:
        place = {"namespace": cluster.namespace, "dockerImage": cluster.image, "nniManagerIp": "127.0.0.1"}
        return example_runs.adapt(EXAMPLE, tmp_path / "config.yaml", {**place, **(service or {})}, **fields)

    return one


@pytest.mark.everywhere
def test_the_example_runs_to_its_end(create, adapted, machinery, cluster):
    profile = json.loads(create(adapted(maxTrialNumber=3), cluster.kubeconfig(), "-p", "0", "--foreground", "--json"))
    assert profile["state"] == "DONE"
    assert profile["counts"]["SUCCEEDED"] == 3
    assert profile["best"]["value"] < 36
    assert len(machinery.node.runs) == 3


def test_the_example_runs_without_a_way_to_the_manager(create, adapted, cluster):
    config = adapted({"nniManagerIp": "192.0.2.1"}, callback="log", maxTrialNumber=2)
    profile = json.loads(create(config, cluster.kubeconfig(), "-p", "0", "--foreground", "--json"))
    assert profile["counts"]["SUCCEEDED"] == 2
    assert profile["best"]["value"] < 36


def test_a_dry_run_prints_the_manifests_and_needs_no_cluster(create, tmp_path):
    nowhere = write_kubeconfig(tmp_path / "kubeconfig", {"server": "http://127.0.0.1:9"}, {"token": "none"})
    text = create(EXAMPLE, nowhere, "--dry-run", "--json")
    assert '"kind": "Job"' in text
    assert '"tolerations"' in text
    assert "the API server http://127.0.0.1:9 cannot be reached" in json.loads(text)["unchecked"]


@pytest.mark.everywhere
def test_a_dry_run_finds_the_rights_that_are_missing_and_starts_nothing(create, adapted, cluster):
    account = cluster.limited(("", ["pods"], ["list", "watch"]))
    text = create(adapted(), account, "--dry-run", code=1)
    assert "this account may not create, get, list, watch, patch, delete jobs.batch" in text
    assert cluster.secrets() == []
    planned = json.loads(create(adapted(), cluster.kubeconfig(), "--dry-run", "--json"))
    assert planned["unchecked"] == ""


@pytest.mark.long  # every day on SSH hosts: what carries a function is code like all other
def test_a_function_runs_as_trials(tmp_path, monkeypatch, machinery, cluster):
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    section = {"platform": "kubernetes", "dockerImage": cluster.image, "nniManagerIp": "127.0.0.1"}
    section |= {"kubeconfig": str(cluster.kubeconfig()), "namespace": cluster.namespace}
    check_function_on(tmp_path / "it's code", section)
