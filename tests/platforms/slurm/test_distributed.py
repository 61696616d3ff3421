"""Trials on several nodes of Slurm: one allocation, with a keeper on each node."""

from __future__ import annotations

import json

import pytest

from meeting_ranks import MEETING
from mpi_sum import SUM, library
from nnilite.testing import eventually

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("slurm-lab"),
]

ON_THREE = {"nodes": 3, "processesPerNode": 2}


def write_canonical(running, trial, path) -> bytes:
    pieces: list[bytes] = []
    running.client.download(trial["id"], path, pieces.append)
    return b"".join(pieces)


def leftovers(lab) -> list[str]:
    """The processes of trials that are left on the nodes."""
    found = [node.run("pgrep -af '[t]rial.py|_keepe[r]|[o]rted' || true").strip() for node in lab.nodes]
    return [text for text in found if text]


def test_the_ranks_of_a_trial_meet_on_three_nodes_and_report_once(begin, slurm_lab):
    running = begin(MEETING, "python3 trial.py", distributed=ON_THREE, maxTrialNumber=1, trialConcurrency=1)
    running.wait("DONE", timeout_s=120)
    [trial] = running.trials()
    assert (trial["state"], trial["value"]) == ("SUCCEEDED", 6)
    [met] = [one["value"] for one in running.client.metrics(trial["id"], kind="PERIODICAL")]
    nodes = sorted(node.name for node in slurm_lab.nodes)
    assert met == {"default": 6, "ranks": [0, 1, 2, 3, 4, 5], "hosts": nodes, "same": True}
    roles = json.loads(write_canonical(running, trial, "0/roles.json"))
    assert [(role["rank"], role["node"], role["exitCode"]) for role in roles] == [
        (rank, rank // 2, 0) for rank in range(6)
    ]
    assert write_canonical(running, trial, "0/roles/rank-5.log").startswith(b"here is 5\n")


def test_a_rank_that_fails_on_another_node_ends_all_and_is_the_reason(begin, slurm_lab):
    running = begin(MEETING, "python3 trial.py 5", distributed=ON_THREE, maxTrialNumber=1, trialConcurrency=1)
    running.wait("DONE", timeout_s=120)
    [trial] = running.trials()
    assert trial["state"] == "FAILED"
    assert trial["reason"].startswith("rank 5 on n3: exit code 1")
    assert "rank 5 fails" in trial["reason"]
    eventually(lambda: not leftovers(slurm_lab), 20)


@pytest.mark.skipif(library() is None, reason="there is no Open MPI; install the package openmpi-bin")
def test_mpirun_starts_the_ranks_on_all_nodes_of_an_allocation_without_slurm(begin, slurm_lab):
    by_mpirun = {**ON_THREE, "launcher": "mpi"}
    running = begin(SUM, "python3 trial.py", distributed=by_mpirun, maxTrialNumber=1, trialConcurrency=1)
    running.wait("DONE", timeout_s=120)
    [trial] = running.trials()
    assert (trial["state"], trial["value"]) == ("SUCCEEDED", 21)
    roles = json.loads(write_canonical(running, trial, "0/roles.json"))
    assert [(role["rank"], role["host"], role["exitCode"]) for role in roles] == [
        (rank, slurm_lab.nodes[rank // 2].name, 0) for rank in range(6)
    ]
    assert write_canonical(running, trial, "0/roles/rank-5.log").endswith(b"rank 5 of 6, local 1, has 21\n")
    eventually(lambda: not leftovers(slurm_lab), 20)


@pytest.mark.long  # every day on this machine and on SSH hosts: what Slurm gives the ranks is in their meeting
@pytest.mark.timeout(300)
def test_a_ddp_training_on_three_nodes_has_the_losses_of_one_process(begin, slurm_lab, ddp):
    for node in slurm_lab.nodes:
        ddp.show_to(node)
    config = ddp.config(nodes=3, processesPerNode=1)
    del config["trainingService"]
    ddp.check(begin("", config.pop("trialCommand"), service={"memory": "2gb"}, **config))
