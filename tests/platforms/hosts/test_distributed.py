"""Trials on several hosts over real SSH: booked at once, started together, ended together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meeting_ranks import MEETING
from mpi_sum import SUM, library
from nnilite.errors import NoCapacity
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.probes import quoted
from platforms.hosts.hosts import USER

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NEEDS_MPI = pytest.mark.skipif(library() is None, reason="there is no Open MPI; install the package openmpi-bin")
ON_TWO = {"nodes": 2, "processes": 2, "launcher": "torch"}


def leftovers(hosts) -> list[str]:
    """The processes of trials that are left on the hosts."""
    found = [host.run("pgrep -af '[s]leep 61|NNILITE_RAN[K]|[m]pirun|[o]rted' || true").strip() for host in hosts]
    return [text for text in found if text]


def command(*more: str) -> str:
    return " ".join(["python3", "-c", quoted(MEETING), *more])


def started(bench, command: str, launcher: str = "torch") -> str:
    """Start a trial on two hosts as soon as both have been prepared; its name."""
    job = bench.job(command, distributed={**ON_TWO, "launcher": launcher}, parameters={"x": 3})

    def is_placed() -> bool:
        try:
            bench.submit(job)
        except NoCapacity:
            return False
        return True

    eventually(is_placed, 90)
    return job.name


def test_the_ranks_of_a_trial_meet_on_two_hosts_and_report_once(hosts, setting, bench_of):
    bench = bench_of(setting.config(*map(setting.machine, hosts)), with_nodes=True)
    name = started(bench, command())
    received = bench.finish(name)
    met, final = received.values
    assert final == 4
    assert (met["ranks"], met["same"]) == ([0, 1, 2, 3], True)
    used = {bench.handles[name]["machine"], *(part["machine"] for part in bench.handles[name]["members"])}
    assert len(used) == len(met["hosts"]) == 2
    target = bench.service.context.directory / "copy"
    bench.call(bench.service.fetch(bench.handles[name], target))
    roles = json.loads((target / "roles.json").read_text())
    assert [(role["rank"], role["node"], role["exitCode"]) for role in roles] == [
        (rank, rank // 2, 0) for rank in range(4)
    ]
    assert (target / "roles/rank-3.log").read_text().startswith("here is 3\n")


def test_hosts_whose_remote_directory_is_on_one_disk_have_a_folder_for_each_node(hosts, setting, bench_of, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    for host in hosts:
        host.share(disk, "/disk")
    hosts[0].run(f"chown {USER} /disk")
    shared = setting.config(*map(setting.machine, hosts), remote_directory="/disk/nnilite")
    bench = bench_of(shared, with_nodes=True)
    name = started(bench, command())
    met, final = bench.finish(name).values
    assert final == 4
    assert (met["ranks"], met["same"]) == ([0, 1, 2, 3], True)
    eventually(lambda: not leftovers(hosts), 30)


@pytest.mark.parametrize("launcher", ["torch", pytest.param("mpi", marks=[pytest.mark.long, NEEDS_MPI])])
def test_a_canceled_trial_leaves_no_process_on_any_host(hosts, setting, bench_of, launcher):
    bench = bench_of(setting.config(*map(setting.machine, hosts)), with_nodes=True)
    name = started(bench, "echo up; exec sleep 61", launcher)
    eventually(lambda: sum(text.count("sleep") for text in leftovers(hosts)) == 4, 30)
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED
    eventually(lambda: not leftovers(hosts), 30)


def test_a_trial_waits_until_all_of_its_hosts_are_free_and_says_how_many_are(hosts, setting, bench_of):
    machines = [setting.machine(host, slots=1) for host in hosts]
    bench = bench_of(setting.config(*machines), with_nodes=True)
    first = started(bench, "exec sleep 61")
    refused = bench.refusal(bench.service.submit(bench.job("true", distributed=ON_TWO)))
    assert isinstance(refused, NoCapacity)
    assert str(refused).startswith("has 1 of 2 machines: ")
    assert "runs 1 of 1 trials (slots)" in str(refused)
    bench.call(bench.service.cancel(bench.handles[first]))
    bench.wait(first)
    assert bench.wait(started(bench, "true")).state is JobState.SUCCEEDED


@pytest.mark.parametrize("launcher", ["torch", pytest.param("mpi", marks=[pytest.mark.long, NEEDS_MPI])])
def test_a_link_that_is_cut_for_20_seconds_does_no_harm(hosts, setting, bench_of, launcher):
    bench = bench_of(setting.config(*map(setting.machine, hosts[:2])), with_nodes=True)
    name = started(bench, "for i in $(seq 35); do echo intermediate $i >> $NNILITE_METRICS; sleep 1; done", launcher)
    eventually(lambda: bench.received(name).values, 30)
    other = next(host for host in hosts if host.address in bench.handles[name]["members"][0]["machine"])
    other.cut_for(20)
    assert bench.finish(name).values == list(range(1, 36))
    assert bench.wait(name).state is JobState.SUCCEEDED


def test_a_host_that_loses_power_makes_the_trial_lost_everywhere(hosts, setting, bench_of):
    bench = bench_of(setting.config(*map(setting.machine, hosts[:2])), with_nodes=True)
    name = started(bench, "exec sleep 61")
    eventually(lambda: len(leftovers(hosts[:2])) == 2, 30)
    other = next(host for host in hosts if host.address in bench.handles[name]["members"][0]["machine"])
    other.power_off()
    status = bench.wait(name, limit_s=120)
    assert status.state is JobState.LOST
    rest = [host for host in hosts[:2] if host is not other]
    eventually(lambda: not leftovers(rest), 30)
    other.power_on()
    assert bench.wait(started(bench, "true")).state is JobState.SUCCEEDED


def test_a_ddp_training_on_two_hosts_has_the_losses_of_one_process(hosts, setting, start, ddp):
    for host in hosts[:2]:
        ddp.show_to(host)
    login = {"user": USER, "sshKeyFile": str(setting.key)}
    section = {"platform": "remote", "machineList": [{"host": host.address, **login} for host in hosts[:2]]}
    section |= {"knownHostsFile": str(setting.known_hosts), "sshConfigFile": str(setting.ssh_config)}
    # Of several processes on a node are the tests above, and the same training on one machine. PyTorch starts in each.
    one_each = {**ddp.config()["distributed"], "processesPerNode": 1}
    ddp.check(start(**{**ddp.config(), "distributed": one_each, "trainingService": section}))


@pytest.fixture
def on_two_by_mpirun(hosts, setting, bench_of):
    """A bench of two hosts, whose trials mpirun starts."""
    return bench_of(setting.config(*map(setting.machine, hosts[:2])), with_nodes=True)


def by_mpirun(*more: str) -> dict[str, Any]:
    return {"command": " ".join(["python3", "-c", quoted(SUM), *more]), "launcher": "mpi"}


@NEEDS_MPI
def test_the_ranks_that_mpirun_starts_on_two_hosts_compute_a_sum(hosts, on_two_by_mpirun):
    bench = on_two_by_mpirun
    name = started(bench, **by_mpirun())
    assert bench.finish(name).values == [10]
    target = bench.service.context.directory / "copy"
    bench.call(bench.service.fetch(bench.handles[name], target))
    roles = json.loads((target / "roles.json").read_text())
    assert [(role["rank"], role["node"], role["exitCode"]) for role in roles] == [
        (rank, rank // 2, 0) for rank in range(4)
    ]
    assert len({role["host"] for role in roles}) == 2
    assert (target / "roles/rank-3.log").read_text().endswith("rank 3 of 4, local 1, has 10\n")
    eventually(lambda: not leftovers(hosts), 30)


@NEEDS_MPI
@pytest.mark.long  # every day with the keeper's own launcher, and of mpirun on one machine
def test_a_rank_of_mpirun_that_fails_on_the_other_host_ends_all_and_is_the_reason(hosts, on_two_by_mpirun):
    bench = on_two_by_mpirun
    status = bench.wait(started(bench, **by_mpirun("3")), JobState.FAILED)
    assert "rank 3 on" in status.reason
    assert "exit code 1\nrank 3 fails" in status.reason
    eventually(lambda: not leftovers(hosts), 30)


@NEEDS_MPI
@pytest.mark.long
def test_a_host_of_mpirun_that_loses_power_makes_the_trial_lost(hosts, on_two_by_mpirun):
    bench = on_two_by_mpirun
    name = started(bench, "exec sleep 61", "mpi")
    eventually(lambda: sum(text.count("sleep 61") >= 2 for text in leftovers(hosts[:2])) == 2, 40)
    other = next(host for host in hosts if host.address in bench.handles[name]["members"][0]["machine"])
    other.power_off()
    assert bench.wait(name, limit_s=120).state is JobState.LOST
    eventually(lambda: not leftovers([host for host in hosts[:2] if host is not other]), 30)
    other.power_on()
    assert bench.wait(started(bench, "true")).state is JobState.SUCCEEDED


COUNT = """
import time, nnilite
for step in range(40):
    nnilite.report_intermediate_result(step)
    time.sleep(0.3)
nnilite.report_final_result(40)
"""


@NEEDS_MPI
@pytest.mark.long
def test_a_manager_that_is_killed_during_mpirun_misses_no_result(hosts, setting, start):
    login = {"user": USER, "sshKeyFile": str(setting.key)}
    section = {"platform": "remote", "machineList": [{"host": host.address, **login} for host in hosts[:2]]}
    section |= {"knownHostsFile": str(setting.known_hosts), "sshConfigFile": str(setting.ssh_config)}
    told = {"nodes": 2, "processesPerNode": 2, "launcher": "mpi"}
    more = {"trialCommand": "python3 trial.py", "maxTrialNumber": 1, "distributed": told}
    running = start(COUNT, trainingService=section, **more)
    running.wait_for(lambda: any(running.client.metrics(one["id"]) for one in running.trials()), 90)
    running.kill_manager()
    running = running.resume()
    running.wait("DONE", timeout_s=90)
    [trial] = running.trials()
    assert (trial["state"], trial["attempt"], trial["value"]) == ("SUCCEEDED", 0, 40)
    values = [one["value"] for one in running.client.metrics(trial["id"], kind="PERIODICAL")]
    assert values == list(range(40))
    eventually(lambda: not leftovers(hosts), 30)
