"""Distributed trials on DLC: the pods of a job are the nodes, and their ranks meet and end together."""

from __future__ import annotations

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.services.delivery import sample_job
from nnilite.testing import eventually
from nnilite.testing.probes import runs
from platforms.dlc.bench import DlcBench
from platforms.dlc.server import NAS, DlcServer
from platforms.node_cases import NodeCases, give_two_nodes

pytestmark = pytest.mark.process


@pytest.fixture
def server(tmp_path):
    with DlcServer(tmp_path / "dlc") as server:
        yield server
    assert server.broken + server.dlc.broken == []


@pytest.fixture
def make_bench(tmp_path, server):
    storage = tmp_path / "na s"
    storage.mkdir()
    mounted = {
        "nas_data_source_id": NAS,
        "local_storage_mount_point": storage,
        "container_storage_mount_point": str(storage),
    }
    return lambda by_log=False, **fields: give_two_nodes(DlcBench(tmp_path, server, by_log, **{**mounted, **fields}))


class TestNodesOnDlc(NodeCases):
    @pytest.fixture(autouse=True)
    def _on(self, server):
        self.dlc = server.dlc

    def take_node_away(self, bench, name):
        [job] = self.dlc.named(name)
        job.pods[1].process.terminate()

    def test_a_trial_whose_pods_are_taken_away_is_lost(self, bench):
        name = self._stay(bench)
        [job] = self.dlc.named(name)
        self.dlc.take_away(job)
        assert bench.wait(name).state is JobState.LOST
        eventually(lambda: not any(map(runs, bench.received(name).values[0])))


def test_a_dry_run_shows_a_pod_for_each_node(make_bench):
    bench = make_bench()
    service = bench._make(bench.context())
    body = service.describe(sample_job(service.context))["body"]
    assert (body["JobType"], body["JobSpecs"][0]["PodCount"]) == ("PyTorchJob", 2)
    bench._loop.close()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"job_type": "XGBoostJob"}, "jobType: is XGBoostJob, and the pods of a distributed trial are those of a Py"),
        ({"job_type": "PyTorchJob", "pod_count": 3}, "podCount: is 3, but distributed.nodes is 2; remove it"),
        ({"local_storage_mount_point": None}, "localStorageMountPoint: is needed for distributed"),
        ({"code_from": "job"}, "codeFrom: is job, but distributed trials have keeper and code from the storage"),
    ],
)
def test_what_cannot_be_the_nodes_of_a_trial_is_refused_with_its_field_and_a_cure(make_bench, fields, said):
    bench = make_bench(**fields)
    with pytest.raises(ConfigError, match=said):
        bench._make(bench.context())
    bench._loop.close()
