"""Volumes: where trials write beyond their pods, and who gets to see the key of a storage account."""

from __future__ import annotations

import base64

import pytest

from nnilite_kubernetes import KubernetesConfig, KubernetesService
from nnilite_kubernetes._config import StorageConfig
from platforms.kube.bench import KubeBench
from platforms.kube.cluster import JOBS, StandIn

_KEEP = """
import nnilite, os, pathlib
pathlib.Path(os.environ["NNI_OUTPUT_DIR"], "model.bin").write_text("weights")
pathlib.Path(os.environ["NNILITE_CHECKPOINT_DIR"], "last").write_text("step 3")
nnilite.report_final_result(1)
"""


@pytest.fixture
def cluster(tmp_path):
    with StandIn(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def open_bench(tmp_path, cluster):
    opened = []

    def make(**fields):
        storage = StorageConfig(**fields)
        config = KubernetesConfig(kubeconfig=cluster.kubeconfig(), docker_image="some:image", storage=storage)
        bench = KubeBench(tmp_path, lambda context: KubernetesService("kubernetes", config, context))
        opened.append(bench)
        return bench.__enter__()

    yield make
    for bench in opened:
        bench.__exit__()


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"storage_type": "pvc", "claim": "results"}, "results"),
        ({"storage_type": "nfs", "server": "10.1.1.1", "path": "/nfs"}, "nfs"),
    ],
)
def test_what_a_trial_writes_outlives_its_pod(cluster, open_bench, tmp_path, fields, place):
    bench = open_bench(**fields)
    name = bench.python(_KEEP)
    assert bench.finish(name).values == [1]
    bench.call(bench.service.remove(bench.handles[name]))
    _, experiment, trial, _ = name.split("-")
    root = tmp_path / "cluster" / "node" / "storage" / place / "nni" / experiment
    assert (root / trial / "0" / "model.bin").read_text() == "weights"
    assert (root / "checkpoints" / trial / "last").read_text() == "step 3"


def test_the_key_of_an_account_is_for_the_cluster_and_not_for_the_trial(cluster, open_bench):
    bench = open_bench(storage_type="azureStorage", azure_account="acc", azure_share="share", azure_key="s3cret")
    bench.finish(bench.run("true"))
    [secret], [job] = cluster.secrets(), cluster.store.all(JOBS)
    volumes = {volume["name"]: volume for volume in job["spec"]["template"]["spec"]["volumes"]}
    assert volumes["nnilite-work"]["azureFile"] == {"secretName": secret["metadata"]["name"], "shareName": "share"}
    assert base64.b64decode(secret["data"]["azurestorageaccountkey"]) == b"s3cret"
    assert {item["key"] for item in volumes["nnilite-job"]["secret"]["items"]} == {"spec", "callback", "keeper", "code"}
    assert "s3cret" not in str(bench.service.describe(bench.job("true")))
