"""Distributed trials on Azure: the instances of a job are the nodes, and their ranks meet and end together."""

from __future__ import annotations

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.services.delivery import sample_job
from nnilite.testing import eventually
from nnilite.testing.probes import runs
from nnilite_aml._config import AmlDistribution
from platforms.aml.bench import MARKS, AmlBench
from platforms.node_cases import NodeCases, give_two_nodes

pytestmark = MARKS


@pytest.fixture
def make_bench(tmp_path, azure):
    return lambda by_log=False, **fields: give_two_nodes(AmlBench(tmp_path, by_log, **fields))


class TestNodesOnAzure(NodeCases):
    @pytest.fixture(autouse=True)
    def _on(self, azure):
        self.workspace = azure.workspace

    def take_node_away(self, bench, name):
        self.workspace.of(name).run.stop_node(1)

    def test_a_trial_whose_nodes_are_preempted_is_lost(self, bench):
        name = self._stay(bench)
        self.workspace.preempt(self.workspace.of(name))
        assert bench.wait(name).state is JobState.LOST
        eventually(lambda: not any(map(runs, bench.received(name).values[0])))


def test_a_dry_run_shows_an_instance_for_each_node_with_one_process(make_bench):
    bench = make_bench()
    service = bench._make(bench.context())
    properties = service.describe(sample_job(service.context))["body"]["properties"]
    assert properties["resources"]["instanceCount"] == 2
    assert properties["distribution"] == {"distributionType": "PyTorch", "processCountPerInstance": 1}
    bench._loop.close()


def test_another_distribution_is_refused_with_its_field_and_a_cure(make_bench):
    bench = make_bench(distribution=AmlDistribution(type="MPI"), instance_count=2)
    with pytest.raises(ConfigError, match="distribution: is another way to start the processes of a trial; remove it"):
        bench._make(bench.context())
    bench._loop.close()


def test_more_nodes_than_the_cluster_has_are_refused_by_the_field_that_sets_them(make_bench):
    with pytest.raises(ConfigError, match="a trial needs 2 nodes, but box has 1 at most") as refused:
        make_bench(compute_target="box").__enter__()
    assert refused.value.place.field == "distributed.nodes"
