"""Trials whose hosts come and go, over real SSH: with PyTorch, each result once, and nothing left behind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nnilite._cli.nnictl import run
from nnilite.testing import eventually
from platforms.hosts.hosts import USER

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(420)]

EPOCHS = 60
SLOW = (
    "import time, train; usual = train.mean; "
    "train.mean = lambda value: (time.sleep(0.06), usual(value))[1]; train.main()"
)
"""The example, with so much time between its steps that hosts can come and go."""


def left_on(hosts) -> list[str]:
    """The processes of trials that are left on the hosts."""
    found = [host.run("pgrep -af '[i]mport time, train' || true").strip() for host in hosts]
    return [text for text in found if text]


@pytest.fixture
def begin(hosts, setting, start, ddp):
    """Begins an experiment with one trial on one to three of the hosts."""
    for host in hosts:
        ddp.show_to(host)

    def begun(fewest: int = 1, **more: Any):
        login = {"user": USER, "sshKeyFile": str(setting.key), "slots": 1}
        section = {"platform": "remote", "machineList": [{"host": host.address, **login} for host in hosts]}
        section |= {"knownHostsFile": str(setting.known_hosts), "sshConfigFile": str(setting.ssh_config)}
        told = {"nodes": {"min": fewest, "max": 3}, "processesPerNode": 1, "launcher": "torch"}
        command = ddp.config()["trialCommand"].replace("train.py", f"-c '{SLOW}'")
        own = {"trialCommand": f"EPOCHS={EPOCHS} {command}", "distributed": told, "gracePeriod": "5s"}
        return start(**{**ddp.config(), **own, "trainingService": section, **more})

    return begun


def steps(running) -> int:
    [trial] = running.trials() or [None]
    return 0 if trial is None else len(list(running.client.metrics(trial["id"], kind="PERIODICAL")))


def sizes(hosts) -> list[int]:
    """How many hosts run a rank now."""
    return [bool(left_on([host])) for host in hosts].count(True)


def check_end(running, ddp, hosts) -> None:
    """Check the results of the only trial: those of one process, each once, in one attempt."""
    running.wait("DONE", timeout_s=240)
    [trial] = running.trials()
    assert (trial["state"], trial["attempt"]) == ("SUCCEEDED", 0), trial["reason"]
    assert ddp.reported(running, trial) == pytest.approx(ddp.losses_of(EPOCHS), abs=1e-4)
    eventually(lambda: not left_on([host for host in hosts if host.has_power]), 30)


def test_a_training_on_two_hosts_then_three_then_one_has_the_losses_of_one_process(hosts, begin, ddp):
    first, second, third = hosts
    third.power_off()
    running = begin()
    running.wait_for(lambda: steps(running) > 3, 90)
    assert sizes([first, second]) == 2
    third.power_on()
    running.wait_for(lambda: sizes(hosts) == 3, 90)
    running.kill_manager()
    running = running.resume()
    before = steps(running)
    running.wait_for(lambda: steps(running) > before + 3, 60)
    others = [host for host in hosts if not leads(running, host)]
    others[0].power_off()
    others[1].run("pkill -KILL -u tester")
    check_end(running, ddp, hosts)
    others[0].power_on()


def test_a_link_that_is_cut_for_20_seconds_changes_nothing_and_two_trials_share_the_hosts(hosts, begin, ddp):
    running = begin(maxTrialNumber=2, trialConcurrency=2)
    running.wait_for(lambda: sizes(hosts) == 3, 90)
    running.wait_for(lambda: any(trial["state"] == "RUNNING" for trial in running.trials()), 30)
    [first] = [trial["id"] for trial in running.trials() if trial["state"] == "RUNNING"]
    machine = running.client.trial(first)["attempts"][-1]["host"]
    other = next(host for host in hosts if host.address not in machine)
    other.cut_for(20)
    running.wait("DONE", timeout_s=240)
    for trial in running.trials():
        assert (trial["state"], trial["attempt"]) == ("SUCCEEDED", 0), trial["reason"]
        assert ddp.reported(running, trial) == pytest.approx(ddp.losses_of(EPOCHS), abs=1e-4)
    eventually(lambda: not left_on(hosts), 30)


def test_a_drill_takes_hosts_of_a_training_whose_curve_stays_whole(hosts, begin, ddp, capsys):
    running = begin()
    running.wait_for(lambda: sizes(hosts) == 3 and steps(running) > 2, 90)
    words = ["drill", "interrupt", "--rate", "4/min", "--for", "50s", "--seed", "1", "--json"]
    assert run([*words, running.entry.id]) == 0
    check_end(running, ddp, hosts)
    capsys.readouterr()
    assert run(["drill", "report", running.entry.id, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    [curve] = told["curves"]
    assert (curve["outcome"], curve["state"]) == ("whole", "SUCCEEDED")
    lost = [one for one in told["interruptions"] if one["host"]]
    assert lost
    assert all(one["lostSeconds"] < 10 and one["waitedSeconds"] < 20 for one in lost)


def leads(running, host) -> bool:
    """Whether the first node of the trial is on this host."""
    [trial] = running.trials()
    return host.address in str(running.client.trial(trial["id"])["attempts"][-1]["host"])
