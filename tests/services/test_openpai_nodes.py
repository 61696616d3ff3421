"""Distributed trials on OpenPAI: all nodes are of one job, and their ranks meet and end together.

The stand-ins check each request against what OpenPAI publishes; all their nodes are this machine.
"""

from __future__ import annotations

import json

import pytest

from nnilite.errors import ConfigError
from nnilite.services.delivery import sample_job
from nnilite.testing import ReadingBench
from nnilite_openpai._config import PaiRoleConfig, RoleCompletion
from platforms.node_cases import NodeCases, give_two_nodes
from platforms.pai.bench import bench_on

pytestmark = pytest.mark.process


@pytest.fixture
def make_bench(tmp_path, pai):
    """Makes a bench whose trials have two nodes. It is not open."""

    def make(by_log: bool = False, **fields) -> ReadingBench:
        bench = bench_on(pai, tmp_path, **fields)
        bench.common.update({"report": "stdout"} if by_log else {})
        return give_two_nodes(bench)

    return make


class TestNodesOnOpenPai(NodeCases):
    @pytest.fixture(autouse=True)
    def _on(self, pai):
        self.pai = pai

    def take_node_away(self, bench, name):
        self.pai.end(name, -1003)


def test_a_dry_run_shows_the_nodes_of_the_request(make_bench):
    with make_bench() as bench:
        shown = json.dumps(bench.service.describe(sample_job(bench.service.context)))
    assert '"instances": 2' in shown


_TWO_ROLES = [PaiRoleConfig(name="a"), PaiRoleConfig(name="b")]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task_roles": _TWO_ROLES}, "taskRoles: are 2, and distributed needs one, whose instances"),
        ({"task_roles": [PaiRoleConfig(name="a", instances=5)]}, r"taskRoles\[0\].instances: is 5, but"),
        (
            {"task_roles": [PaiRoleConfig(name="a", completion=RoleCompletion(min_succeeded_instances=1))]},
            r"taskRoles\[0\].completion: is what distributed sets; remove it",
        ),
    ],
)
def test_what_cannot_be_the_nodes_of_a_trial_is_refused_with_its_field_and_a_cure(make_bench, fields, said):
    bench = make_bench(**fields)
    with pytest.raises(ConfigError, match=said):
        bench._make(bench.context())
    bench._loop.close()
