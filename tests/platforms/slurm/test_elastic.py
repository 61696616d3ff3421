"""Trials whose nodes come and go on Slurm: in their allocation, and by jobs that join them."""

from __future__ import annotations

from typing import Any

import pytest

from nnilite.testing import eventually
from platforms.hosts.hosts import USER
from platforms.slurm.test_lab import attempts_of

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("slurm-elastic"),
]

ELASTIC = {"nodes": {"min": 1, "max": 3}, "processesPerNode": 1}
STAY = """import os, pathlib, time, nnilite
nnilite.get_next_parameter()
size = int(os.environ["WORLD_SIZE"])
while not pathlib.Path("/shared/end").exists():
    nnilite.report_intermediate_result(size)
    time.sleep(0.3)
nnilite.report_final_result(size)
"""


class Elastic:
    """An experiment with one such trial, on the lab."""

    def __init__(self, lab: Any, running: Any) -> None:
        self.lab = lab
        self.running = running

    @property
    def trial(self) -> dict[str, Any]:
        [trial] = self.running.trials()
        return trial

    @property
    def size(self) -> int:
        """How many ranks there are, by the last report."""
        metrics = [self.running.client.metrics(one["id"], kind="PERIODICAL") for one in self.running.trials()]
        values = [one["value"] for metric in metrics for one in metric]
        return int(values[-1]) if values else 0

    def wait_for_size(self, size: int, limit_s: float = 90) -> None:
        self.running.wait_for(lambda: self.size == size, limit_s)

    def queue(self, form: str) -> list[str]:
        return self.lab.ask(f"squeue -h -u {USER} -o '{form}'").split()

    def end(self) -> None:
        """Let the trial end, and check that it has left nothing."""
        self.lab.head.run("touch /shared/end")
        self.running.wait("DONE", timeout_s=120)
        eventually(lambda: not self.queue("%i"), 30)
        for node in self.lab.nodes:
            if node.has_power:
                eventually(lambda node=node: not node.run("pgrep -af '[t]rial.py|_keepe[r]' || true").strip(), 20)


@pytest.fixture
def begin_elastic(begin, slurm_lab):
    slurm_lab.head.run("rm -f /shared/end")

    def make(**more: Any) -> Elastic:
        told = {"distributed": ELASTIC, "maxTrialNumber": 1, "trialConcurrency": 1, "gracePeriod": "3s", **more}
        return Elastic(slurm_lab, begin(STAY, "python3 trial.py", **told))

    return make


@pytest.mark.long  # a minute; the rules of growing are those of unit tests, and what joins is canceled below every day
def test_a_trial_begins_with_the_nodes_that_are_free_grows_and_goes_on_without_one_that_is_lost(
    begin_elastic, slurm_lab
):
    other = slurm_lab.head.run("sbatch --parsable -w n3 -N1 --exclusive -o /dev/null --wrap 'sleep 300'").strip()
    eventually(lambda: slurm_lab.ask(f"squeue -h -j {other} -o %T") == "RUNNING", 30)
    elastic = begin_elastic()
    elastic.wait_for_size(2)
    eventually(lambda: [name.endswith("+") for name in elastic.queue("%j")].count(True) == 1, 30)
    slurm_lab.ask(f"scancel {other}")
    elastic.wait_for_size(3)
    slurm_lab.nodes[2].run(f"pkill -KILL -u {USER}")
    elastic.wait_for_size(2)
    elastic.wait_for_size(3)
    elastic.end()
    [attempt] = attempts_of(elastic.running, elastic.trial)
    assert (elastic.trial["state"], elastic.trial["value"], attempt["state"]) == ("SUCCEEDED", 3, "SUCCEEDED")


@pytest.mark.long
def test_a_drill_takes_nodes_of_a_trial_which_gets_others_by_jobs_that_join(begin_elastic, slurm_lab):
    elastic = begin_elastic()
    elastic.wait_for_size(3)
    elastic.running.client.interrupt(elastic.trial["id"])
    elastic.wait_for_size(2)
    elastic.wait_for_size(3, 120)
    assert sorted(name[-1] for name in elastic.queue("%j")) == ["+", "0"]
    elastic.end()
    assert (elastic.trial["state"], elastic.trial["attempt"]) == ("SUCCEEDED", 0)


@pytest.mark.long
@pytest.mark.timeout(420)
def test_a_trial_goes_on_without_a_node_that_loses_power_and_is_tried_again_without_its_first_one(
    begin_elastic, slurm_lab
):
    elastic = begin_elastic(maxTrialRetries=2)
    elastic.wait_for_size(3)
    first = attempts_of(elastic.running, elastic.trial)[0]["host"]
    others = [node for node in slurm_lab.nodes if node.name != first]
    others[0].power_off()
    elastic.wait_for_size(2, 150)
    assert elastic.trial["attempt"] == 0
    next(node for node in slurm_lab.nodes if node.name == first).power_off()
    elastic.running.wait_for(lambda: elastic.trial["attempt"] == 1, 90)
    lost = attempts_of(elastic.running, elastic.trial)[0]
    assert (lost["state"], lost["message"]) == ("LOST", f"Slurm has lost {first}, the first node of the job")
    elastic.wait_for_size(1, 90)
    elastic.end()


def test_a_trial_that_is_canceled_takes_back_the_job_that_waits_to_join_it(begin_elastic, slurm_lab):
    slurm_lab.ask("sbatch --parsable -w n3 -N1 --exclusive -o /dev/null --wrap 'sleep 300'")
    elastic = begin_elastic()
    elastic.wait_for_size(2)
    elastic.running.wait_for(lambda: any(name.endswith("+") for name in elastic.queue("%j")), 60)
    elastic.running.client.cancel(elastic.trial["id"])
    elastic.running.wait("DONE", timeout_s=90)
    assert elastic.trial["state"] == "USER_CANCELED"
    eventually(lambda: not elastic.queue("%i"), 30)
