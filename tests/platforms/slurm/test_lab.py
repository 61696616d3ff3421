"""Trials on a Slurm of three nodes, by SSH from this machine, with hosts and daemons that die."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nnilite.errors import ConfigError
from nnilite.testing import ServiceBench
from nnilite_slurm import LoginConfig, SlurmConfig, SlurmService
from platforms.hosts.hosts import USER

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("slurm-lab"),
]

COUNTING = """
import os, socket, sys, time
import nnilite
steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
saved = nnilite.checkpoint_dir() / "step"
print("GPUs:", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
for step in range(int(saved.read_text()) if saved.exists() else 0, steps):
    nnilite.report_intermediate_result({"default": step, "host": socket.gethostname()})
    with nnilite.checkpoint("step") as path:
        path.write_text(str(step + 1))
    time.sleep(pause_s)
nnilite.report_final_result(steps)
"""


def attempts_of(running, trial) -> list:
    return running.client.trial(trial["id"])["attempts"]


def test_a_search_runs_on_the_nodes_by_ssh(begin, slurm_lab):
    running = begin(COUNTING, "python3 trial.py 3 0.1", maxTrialNumber=6, trialConcurrency=6)
    running.wait("DONE", timeout_s=120)
    trials = running.trials()
    assert [(trial["state"], trial["value"]) for trial in trials] == [("SUCCEEDED", 3)] * 6
    values = [one["value"]["default"] for one in running.client.metrics(trials[0]["id"], kind="PERIODICAL")]
    assert values == [0, 1, 2]
    hosts = {attempts_of(running, trial)[0]["host"] for trial in trials}
    assert hosts <= {node.name for node in slurm_lab.nodes}
    assert len(hosts) > 1
    assert running.client.output(trials[0]["id"], "stdout")[0].startswith(b"GPUs:")


def test_each_trial_gets_its_own_simulated_gpu_and_others_wait_for_one(begin):
    config = {"trialGpuNumber": 2, "trialConcurrency": 4, "maxTrialNumber": 4}
    running = begin(COUNTING, "python3 trial.py 30 0.2", service={"partition": "short"}, **config)
    words = "waits in Slurm (Resources): nodes with what it asks for are busy"
    running.wait_for(lambda: any(words in trial["reason"] for trial in running.trials()))
    running.wait("DONE", timeout_s=120)
    said = [running.client.output(trial["id"], "stdout")[0] for trial in running.trials()]
    assert said == [b"GPUs: 0,1\n"] * 4


def test_a_trial_that_a_more_urgent_job_preempts_is_tried_again(begin, slurm_lab):
    config = {"maxTrialNumber": 3, "trialConcurrency": 3, "service": {"cpus": 2, "nodes": 1}}
    running = begin(COUNTING, "python3 trial.py 50 0.2", **config)
    running.wait_for(lambda: [trial["state"] for trial in running.trials()] == ["RUNNING"] * 3)
    slurm_lab.ask("sbatch -p urgent -c 2 --mem=100 --output=/dev/null --wrap='sleep 3'")
    running.wait("DONE", timeout_s=120)
    found = [attempts_of(running, trial) for trial in running.trials()]
    [[lost, again]] = [attempts for attempts in found if len(attempts) > 1]
    assert (lost["state"], again["state"]) == ("LOST", "SUCCEEDED")
    assert lost["message"].startswith("Slurm: PREEMPTED, another job preempted it")
    assert [trial["value"] for trial in running.trials()] == [50] * 3


def test_stopping_an_experiment_ends_its_jobs_and_leaves_nothing_on_the_cluster(begin, slurm_lab):
    config = {"trialConcurrency": 5, "gracePeriod": "1s"}
    running = begin(COUNTING, "python3 trial.py 1000 0.2", service={"cpus": 2, "keep": "nothing"}, **config)
    running.wait_for(lambda: [trial["state"] for trial in running.trials()].count("RUNNING") == 3)
    running.stop()
    assert slurm_lab.ask("squeue -h -t pending,running,completing") == ""
    assert slurm_lab.ask(f"cd /shared/home/{USER}/nnilite && find . -type f | grep -v cache") == ""


def test_a_login_node_that_lets_nobody_in_is_told_at_the_start(slurm_lab, login, tmp_path):
    files = {"known_hosts_file": tmp_path / "known", "ssh_config_file": tmp_path / "config"}
    config = SlurmConfig(login=LoginConfig(login["host"], user=USER, password="Gu3ss", **files))
    bench = ServiceBench(tmp_path, lambda context: SlurmService("slurm", config, by_folder(context)))
    with pytest.raises(ConfigError, match="the password is wrong") as caught:
        bench.__enter__()
    bench.__exit__()
    assert caught.value.place.field == "login"
    assert "Gu3ss" not in str(caught.value)


def by_folder(context):
    """The same, with `callback: log`."""
    return replace(context, defaults={"callback": "log"})
