"""One experiment here, on a host that dies half-way, and on a cluster that is full; an S3 bucket is what they share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.running import Running
from nnilite._keeper.storage_choice import open_storage
from platforms.hosts.hosts import USER
from platforms.hosts.test_experiments import COUNTING, attempts_of, steps_of
from platforms.kube.cluster import StandIn

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

STEPS = 40
KEYS = {"accessKey": "key", "secretKey": "of the bucket"}


@pytest.fixture
def bucket(network) -> Iterator[dict[str, Any]]:
    """The config's section for a bucket that hosts and this machine reach."""
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address=network.gateway, port=0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "of the bucket", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket="moves")
        yield {"storageType": "S3", "endpoint": url, "bucket": "moves", **KEYS, "saveEvery": "1s"}
    finally:
        server.stop()


@pytest.fixture
def full_cluster(tmp_path) -> Iterator[dict[str, Any]]:
    """The section of a service on a cluster whose nodes have no room: its pods stay pending."""
    pytest.importorskip("kubernetes")
    with StandIn(tmp_path / "kube") as cluster:
        cluster.node.close()
        place = {"namespace": cluster.namespace, "dockerImage": cluster.image, "nniManagerIp": "127.0.0.1"}
        yield {"platform": "kubernetes", "name": "cluster", "maxTrials": 1, "kubeconfig": cluster.kubeconfig(), **place}


def saved(running: Running, bucket: dict[str, Any], trial: dict[str, Any], folder: Path) -> bool:
    """Whether the bucket has a checkpoint of the trial's present attempt."""
    url = f"{bucket['endpoint']}/{bucket['bucket']}"
    credentials = {"access_key": bucket["accessKey"], "secret": bucket["secretKey"]}
    storage = open_storage({"kind": "s3", "url": url, "prefix": f"nni/{running.entry.id}", **credentials})
    return storage.get(f"checkpoints/{trial['id']}/{trial['attempt']}.json", str(folder / "list"))


@pytest.mark.long  # trials move every day on Slurm
def test_no_result_is_lost_where_one_service_dies_and_another_is_full(
    start,
    hosts,
    setting,
    bucket,
    full_cluster,
    tmp_path,
    monkeypatch,
):
    monkeypatch.setenv("KUBECONFIG", str(full_cluster.pop("kubeconfig")))
    machine = {"host": hosts[0].address, "user": USER, "sshKeyFile": str(setting.key)}
    files = {"knownHostsFile": str(setting.known_hosts), "sshConfigFile": str(setting.ssh_config)}
    spot = {"platform": "remote", "name": "spot", "maxTrials": 2, "machineList": [machine], **files}
    running = start(
        COUNTING.replace("int(sys.argv[1]), float(sys.argv[2])", f"{STEPS}, 0.25"),
        trainingService=[full_cluster, spot, {"platform": "local", "name": "own"}],
        **{"placement": "fill", "moveAfter": "6s", "workerSilence": "15s", "sharedStorage": bucket},
        **{"trialConcurrency": 4, "maxTrialNumber": 4, "maxTrialRetries": 3},
    )
    on_spot: list[str] = []

    def half_way() -> bool:
        there = [one for one in running.trials() if (one["service"], one["state"]) == ("spot", "RUNNING")]
        on_spot[:] = [one["id"] for one in there if saved(running, bucket, one, tmp_path)]
        return bool(on_spot)

    running.wait_for(half_way)
    hosts[0].power_off()
    profile = running.wait("DONE", timeout_s=120.0)
    assert profile["counts"]["SUCCEEDED"] == 4
    stories = {trial["id"]: check_story(running, trial) for trial in running.trials()}
    assert any("waited long in the queue of cluster" in reason for story in stories.values() for _, reason in story)
    for trial in on_spot:
        assert "spot" in [home for home, _ in stories[trial]][:-1]
        assert first_step(running, trial) > 0, "its checkpoint was not found"


def first_step(running: Running, trial: str) -> int:
    """The step with which the last attempt has begun."""
    steps = [(number, step) for number, step, _ in steps_of(running, {"id": trial})]
    return min(step for number, step in steps if number == max(steps)[0])


def check_story(running: Running, trial: dict[str, Any]) -> list[tuple[str, str]]:
    """Each step of each attempt is there once, without a gap. Where the trial was, and why it has left."""
    steps = [(number, step) for number, step, _ in steps_of(running, trial)]
    assert len(steps) == len(set(steps))
    assert {step for _, step in steps} == set(range(STEPS))
    assert (trial["value"], trial["service"]) == (STEPS, "own")
    found = [(attempt["service"], attempt["message"]) for attempt in attempts_of(running, trial)]
    assert all(reason for _, reason in found[:-1]), "the record says why it has moved"
    return found
