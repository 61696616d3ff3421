"""Whole experiments on a cluster: a real manager, the example's files, pods that run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from platforms.kube.cluster import JOBS, StandIn

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "config.yaml"


@pytest.fixture
def cluster(tmp_path):
    with StandIn(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def create(tmp_path, cluster, monkeypatch):
    """Runs `nnictl create` on a config; its standard output."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig()))

    def one(config: Path, *more: str) -> str:
        command = [sys.executable, "-m", "nnilite._cli", "create", "-c", str(config), *more]
        ran = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=100, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return one


def test_the_example_runs_to_its_end(create, cluster):
    profile = json.loads(create(EXAMPLE, "-p", "0", "--foreground", "--json"))
    assert profile["state"] == "DONE"
    assert profile["counts"]["SUCCEEDED"] == 6
    assert profile["best"]["value"] < 36
    assert len(cluster.node.runs) == 6


def test_the_example_runs_without_a_way_to_the_manager(create, tmp_path):
    config = {**yaml.safe_load(EXAMPLE.read_text()), "callback": "log", "maxTrialNumber": 2}
    config["trialCodeDirectory"] = str(EXAMPLE.parent)
    config["trainingService"]["nniManagerIp"] = "192.0.2.1"
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    profile = json.loads(create(path, "-p", "0", "--foreground", "--json"))
    assert profile["counts"]["SUCCEEDED"] == 2
    assert profile["best"]["value"] < 36


def test_a_dry_run_prints_the_manifests_and_touches_nothing(create, cluster):
    text = create(EXAMPLE, "--dry-run", "--json")
    assert '"kind": "Job"' in text
    assert '"tolerations"' in text
    assert cluster.api.requests == []
    assert cluster.store.all(JOBS) == []
