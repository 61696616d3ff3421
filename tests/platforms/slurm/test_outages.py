"""A Slurm of three nodes of which a node, slurmctld or the way to the login node is gone, in the middle of a search."""

from __future__ import annotations

import pytest

from platforms.slurm.test_lab import COUNTING, attempts_of

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,  # every day test_trouble has a slurmctld that is away, and SSH hosts lose power and links
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("slurm-outages"),
]


def test_a_trial_of_a_node_that_loses_power_goes_on_elsewhere_from_its_checkpoint(begin, slurm_lab):
    running = begin(COUNTING, "python3 trial.py 30 0.2", maxTrialNumber=1, trialConcurrency=1)
    running.wait_for(lambda: running.trials() and len(list(running.client.metrics(running.trials()[0]["id"]))) > 3)
    [trial] = running.trials()
    name = attempts_of(running, trial)[0]["host"]
    next(node for node in slurm_lab.nodes if node.name == name).power_off()
    running.wait("DONE", timeout_s=150)
    lost, again = attempts_of(running, trial)
    assert (lost["state"], again["state"]) == ("LOST", "SUCCEEDED")
    assert lost["message"].startswith("Slurm: NODE_FAIL, the job's node failed")
    assert again["host"] != name
    found = running.client.metrics(trial["id"], kind="PERIODICAL")
    second = [one["value"]["default"] for one in found if one["attempt"] == 1]
    assert second[0] > 0
    assert second == list(range(second[0], 30))


def test_a_slurmctld_that_dies_and_comes_back_loses_nothing(begin, slurm_lab):
    running = begin(COUNTING, "python3 trial.py 100 0.2", maxTrialNumber=2, trialConcurrency=2)
    running.wait_for(lambda: [trial["state"] for trial in running.trials()] == ["RUNNING"] * 2)
    slurm_lab.await_saved()
    slurm_lab.kill_slurmctld()
    running.wait_for(lambda: "Slurm does not answer" in running.client.profile()["hosts"][0]["reason"])
    seen = len(list(running.client.metrics(running.trials()[0]["id"])))
    running.wait_for(lambda: len(list(running.client.metrics(running.trials()[0]["id"]))) > seen)
    slurm_lab.start_slurmctld()
    running.wait("DONE", timeout_s=120)
    assert [trial["value"] for trial in running.trials()] == [100] * 2
    assert [len(attempts_of(running, trial)) for trial in running.trials()] == [1, 1]


def test_a_login_node_that_is_cut_off_for_a_while_costs_no_trial(begin, slurm_lab):
    running = begin(COUNTING, "python3 trial.py 40 0.2", maxTrialNumber=2, trialConcurrency=2)
    running.wait_for(lambda: [trial["state"] for trial in running.trials()] == ["RUNNING"] * 2)
    slurm_lab.head.kill_sessions()
    slurm_lab.head.cut_for(3)
    running.wait("DONE", timeout_s=120)
    found = running.client.metrics(running.trials()[0]["id"], kind="PERIODICAL")
    assert [one["value"]["default"] for one in found] == list(range(40))
    assert [len(attempts_of(running, trial)) for trial in running.trials()] == [1, 1]
