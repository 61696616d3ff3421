"""Volumes: where trials write beyond their pods, and who gets to see the key of a storage account."""

from __future__ import annotations

import base64

import pytest

from nnilite_kubernetes import KubernetesConfig, KubernetesService
from nnilite_kubernetes._config import StorageConfig
from platforms.kube.bench import Platform
from platforms.kube.client import JOBS
from platforms.kube.cluster import IMAGE

pytestmark = pytest.mark.process

_KEEP = """
import nnilite, os, pathlib
pathlib.Path(os.environ["NNI_OUTPUT_DIR"], "model.bin").write_text("weights")
pathlib.Path(os.environ["NNILITE_CHECKPOINT_DIR"], "last").write_text("step 3")
nnilite.report_final_result(1)
"""


@pytest.fixture
def platform():
    return Platform(KubernetesService, KubernetesConfig, {"docker_image": IMAGE})


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"storage_type": "pvc", "claim": "results"}, "results"),
        ({"storage_type": "nfs", "server": "10.1.1.1", "path": "/nfs"}, "nfs"),
    ],
)
def test_what_a_trial_writes_outlives_its_pod(machinery, open_bench, fields, place):
    bench = open_bench(storage=StorageConfig(**fields))
    name = bench.python(_KEEP)
    assert bench.finish(name).values == [1]
    bench.call(bench.service.remove(bench.handles[name]))
    _, experiment, trial, _ = name.split("-")
    root = machinery.node.folder / "storage" / place / "nni" / experiment
    assert (root / trial / "0" / "model.bin").read_text() == "weights"
    assert (root / "checkpoints" / trial / "last").read_text() == "step 3"


def test_the_key_of_an_account_is_for_the_cluster_and_not_for_the_trial(machinery, cluster, open_bench):
    names = {"azure_account": "acc", "azure_share": "share", "azure_key": "s3cret"}
    bench = open_bench(storage=StorageConfig(storage_type="azureStorage", **names))
    bench.finish(bench.run("true"))
    [secret], [job] = cluster.secrets(), cluster.all(JOBS)
    volumes = {volume["name"]: volume for volume in job["spec"]["template"]["spec"]["volumes"]}
    assert volumes["nnilite-work"]["azureFile"] == {"secretName": secret["metadata"]["name"], "shareName": "share"}
    assert base64.b64decode(secret["data"]["azurestorageaccountkey"]) == b"s3cret"
    assert {item["key"] for item in volumes["nnilite-job"]["secret"]["items"]} == {"spec", "callback", "keeper", "code"}
    assert "s3cret" not in str(bench.service.describe(bench.job("true")))
