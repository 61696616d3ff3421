"""Whole experiments on hosts: the real manager in a process of its own, real SSH, real trials."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from function_programs import check_function_on
from nnilite._running.reading import what_ran
from nnilite.errors import Conflict
from platforms.hosts.hosts import PASSWORD, USER

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "remote"

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

COUNTING = """
import socket, sys, time
import nnilite
steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
saved = nnilite.checkpoint_dir() / "step"
for step in range(int(saved.read_text()) if saved.exists() else 0, steps):
    nnilite.report_intermediate_result({"default": step, "host": socket.gethostname()})
    with nnilite.checkpoint("step") as path:
        path.write_text(str(step + 1))
    time.sleep(pause_s)
nnilite.report_final_result(steps)
"""


@pytest.fixture
def begin(start, hosts, setting, monkeypatch):
    """Start an experiment with a trial program on all hosts: two by key, one by a password of the environment."""
    monkeypatch.setenv("SSH_PASSWORD", PASSWORD)

    def make(code: str, command: str, *, machine=None, third=None, service=None, **config):
        machines = [{"host": h.address, "user": USER, "sshKeyFile": str(setting.key), **(machine or {})} for h in hosts]
        del machines[1]["sshKeyFile"]
        machines[1]["password"] = "${env:SSH_PASSWORD}"
        machines[2] |= third or {}
        section = {"platform": "remote", "machineList": machines, **(service or {})}
        section |= {"knownHostsFile": str(setting.known_hosts), "sshConfigFile": str(setting.ssh_config)}
        return start(code, trialCommand=command, trainingService=section, **config)

    return make


def steps_of(running, trial) -> list:
    """The intermediate results of a trial, in order of attempts."""
    found = running.client.metrics(trial["id"], kind="PERIODICAL")
    return [(one["attempt"], one["value"]["default"], one["value"]["host"]) for one in found]


def attempts_of(running, trial) -> list:
    return running.client.trial(trial["id"])["attempts"]


def hosts_of(running, trial, hosts) -> list:
    """The host of each attempt; it is known by its own name first, then by that in machineList."""
    named = {name: host for host in hosts for name in (host.name, host.address)}
    return [named.get(attempt["host"]) for attempt in attempts_of(running, trial)]


def nnictl(*words: str, code: int = 0, **env: str) -> str:
    """What the program prints, errors too."""
    command = [sys.executable, "-m", "nnilite._cli", *words]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=150)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def one_each(running, hosts, least: int = 1):
    """The trials, once there is one on each host and each has reported."""
    running.wait_for(lambda: len(running.trials()) == len(hosts))
    running.wait_for(lambda: all(len(list(running.client.metrics(t["id"]))) >= least for t in running.trials()))
    trials = running.trials()
    assert {hosts_of(running, trial, hosts)[0] for trial in trials} == set(hosts)
    return trials


def test_trials_report_through_the_connection_also_where_a_log_was_asked_for(begin):
    running = begin(COUNTING, "python3 trial.py 3 0", callback="log", trialConcurrency=3, maxTrialNumber=3)
    running.wait("DONE", timeout_s=90)
    assert [(trial["state"], trial["value"]) for trial in running.trials()] == [("SUCCEEDED", 3)] * 3
    assert len(steps_of(running, running.trials()[0])) == 3
    running.wait_for(lambda: what_ran(running.client)["start"])
    said = [host for worker in what_ran(running.client)["workers"] for host in worker["hosts"]]
    ran_on = {attempts_of(running, trial)[0]["host"] for trial in running.trials()}
    assert sorted(said) == sorted(ran_on)


@pytest.mark.long  # every day test_failures has a host that is power-cycled
def test_trials_of_a_power_cycled_host_go_on_elsewhere_from_their_checkpoints(begin, hosts):
    running = begin(COUNTING, "python3 trial.py 50 0.2", trialConcurrency=3, maxTrialNumber=3)
    trial = one_each(running, hosts, least=4)[0]
    [host] = hosts_of(running, trial, hosts)
    host.power_off()
    seen = len(steps_of(running, trial))
    host.power_on()
    running.wait_for(lambda: len(attempts_of(running, trial)) == 2, 90)
    running.wait("DONE", timeout_s=90)
    lost, again = attempts_of(running, trial)
    assert (lost["state"], lost["message"], again["state"]) == ("LOST", "its machine was restarted", "SUCCEEDED")
    assert hosts_of(running, trial, hosts)[1] not in (host, None)
    first = [step for attempt, step, _ in steps_of(running, trial) if attempt == 0]
    second = [step for attempt, step, _ in steps_of(running, trial) if attempt == 1]
    assert first == list(range(len(first)))
    assert len(first) >= seen
    assert second == list(range(second[0], 50))
    assert 0 < second[0] <= len(first)  # it went on where its checkpoint was
    assert [trial["value"] for trial in running.trials()] == [50] * 3
    assert sum(len(attempts_of(running, t)) for t in running.trials()) == 4


def test_a_host_that_is_away_for_too_long_gives_its_trial_to_another(begin, hosts):
    running = begin(COUNTING, "python3 trial.py 60 0.2", trialConcurrency=3, maxTrialNumber=3, workerSilence="3s")
    trial = one_each(running, hosts)[0]
    [host] = hosts_of(running, trial, hosts)
    host.cut()
    running.wait_for(lambda: attempts_of(running, trial)[-1]["number"] == 1 and attempts_of(running, trial)[-1]["host"])
    host.mend()
    running.wait_for(lambda: host.run("pgrep -f '[t]rial.py' || true") == "", 60)  # it is told that it was given up
    running.wait("DONE", timeout_s=90)
    lost, again = attempts_of(running, trial)
    assert (lost["state"], again["state"]) == ("LOST", "SUCCEEDED")
    assert lost["message"].startswith("no sign of life for")
    assert hosts_of(running, trial, hosts)[1] not in (host, None)
    steps = [step for attempt, step, _ in steps_of(running, trial) if attempt == 1]
    assert steps == list(range(60))


ENDLESS = """
import os, time
import nnilite
nnilite.report_intermediate_result(0)
with open(os.path.join(os.environ["NNI_OUTPUT_DIR"], "model.bin"), "w") as file:
    file.write("all that it has learned")
time.sleep(1000)
"""
PROCESSES = "pgrep -u tester -f '[t]rial.py|[k]eeper' || true"


def test_hosts_that_are_away_at_the_stop_are_named_and_cleaned_up_later(begin, hosts):
    config = {"trialConcurrency": 3, "maxTrialNumber": 3, "gracePeriod": "1s", "service": {"keep": "nothing"}}
    running = begin(ENDLESS, "python3 trial.py", **config)
    one_each(running, hosts)
    for host in hosts[:2]:
        host.cut()
    said = nnictl("stop", running.entry.id, code=1)
    for host in hosts[:2]:
        host.mend()
        assert f"{host.address} was unreachable, so its trials may still run" in said
        assert host.run(PROCESSES) != ""
    assert hosts[2].address not in said
    assert running.entry.id not in hosts[2].run("ls ~tester/nnilite")
    by_hand = re.search(rf"`ssh -i \S+ {USER}@{hosts[0].address} '(rm .*?)'`", said)
    remove = by_hand.group(1)
    hosts[0].run(f"{remove} || {remove}", user=USER)  # what still runs there may write something meanwhile
    running = running.resume()
    for host in hosts[:2]:
        running.wait_for(lambda: host.run(PROCESSES) == "", 30)  # noqa: B023
    assert nnictl("stop", running.entry.id).split("\n")[1:] == [""]
    assert [host.run("ls ~tester/nnilite").split() for host in hosts] == [["cache"]] * 3


TALKING = """
import os, sys, time
import nnilite
out = os.environ["NNI_OUTPUT_DIR"]
print("first line", flush=True)
print("first complaint", file=sys.stderr, flush=True)
while not os.path.exists(os.path.join(out, "go on")):
    time.sleep(0.05)
os.makedirs(os.path.join(out, "models"))
with open(os.path.join(out, "models", "it's $best.bin"), "wb") as file:
    file.write(bytes(range(256)) * 4096)
os.link(file.name, os.path.join(out, "models", "latest.bin"))
print("last line", flush=True)
nnilite.report_final_result(1)
"""


def test_output_is_followed_live_and_a_trials_folder_is_downloaded(begin, hosts, tmp_path):
    running = begin(TALKING, "python3 trial.py", trialConcurrency=1, maxTrialNumber=1)
    running.wait_for(lambda: running.trials() and attempts_of(running, running.trials()[0])[-1]["host"])
    [trial] = running.trials()
    command = [sys.executable, "-m", "nnilite._cli", "log", "trial", running.entry.id, "-T", trial["id"], "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout.readline() == "first line\n"
        assert following.stderr.readline() == "first complaint\n"
        folder = f"~tester/nnilite/{running.entry.id}/trials/{trial['id']}/0"
        nnictl("trial", "show", running.entry.id, "-T", trial["id"])  # copies what there is by now
        hosts_of(running, trial, hosts)[0].run(f"touch {folder}/'go on'", user=USER)
        assert following.stdout.read() == "last line\n"
    target = tmp_path / "here"
    running.wait("DONE")
    said = nnictl("trial", "download", running.entry.id, "-T", trial["id"], "-o", str(target))
    assert str(target) in said
    [model] = target.rglob("it's $best.bin")
    assert model.read_bytes() == model.with_name("latest.bin").read_bytes() == bytes(range(256)) * 4096
    [printed] = target.rglob("trial.stdout")
    assert printed.read_text() == "first line\nlast line\n"
    assert list(target.rglob("spec.json")) == []


def test_the_example_runs_as_it_is(hosts, setting, tmp_path):
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    for number, host in enumerate(hosts[:2], 1):
        with (home / ".ssh" / "config").open("a") as file:
            file.write(f"Host worker{number}\n HostName {host.address}\n User {USER}\n IdentityFile {setting.key}\n")
    env = {"HOME": str(home), "NNILITE_HOME": str(tmp_path / "kept")}
    out = nnictl("create", "-c", str(EXAMPLE / "config.yaml"), "-p", "0", "--foreground", "--json", **env)
    profile = json.loads(out[out.index("{") : out.rindex("}") + 1])
    assert (profile["state"], profile["counts"]["SUCCEEDED"]) == ("DONE", 12)
    assert {host["name"] for host in profile["hosts"]} == {"worker1", "worker2"}
    left = [host.run("cat ~tester/nnilite/*/trials/*/0/where.txt").splitlines() for host in hosts[:2]]
    assert sum(map(len, left)) == 12
    for host, lines in zip(hosts, left, strict=False):
        assert {line.split()[-1] for line in lines} == {host.name}


def test_the_hosts_states_and_last_errors_are_shown_and_no_secret_is(begin, hosts):
    config = {"machine": {"slots": 1}, "third": {"password": "Gu3ss"}, "trialConcurrency": 4, "maxTrialNumber": 4}
    running = begin(COUNTING, "python3 trial.py 200 0.2", **config)
    running.wait_for(lambda: any("slots" in trial["reason"] for trial in running.trials()))
    shown = nnictl("experiment", "show", running.entry.id)
    away = "(down|connecting)"  # it is tried again and again
    assert re.search(rf"{hosts[0].address} +up +1", shown)
    assert re.search(rf"{hosts[2].address} +{away} +0 +does not let {USER} in: the password is wrong", shown)
    waiting = " ".join(nnictl("experiment", "status", running.entry.id).split())
    assert f"{hosts[0].address}, {hosts[1].address} runs 1 of 1 trials (slots)" in waiting
    assert re.search(f"{hosts[2].address} is {away}: does not let {USER} in", waiting)
    said = [nnictl(*words.split(), running.entry.id) for words in ("log manager", "config show", "experiment show")]
    said += [json.dumps(running.client.profile())]
    own = running.directory / "config.json"  # by which it is resumed
    assert own.stat().st_mode & 0o777 == 0o600
    kept = [path.read_bytes() for path in running.directory.rglob("*") if path.is_file() and path != own]
    texts = b"".join([*kept, *(text.encode() for text in said)])
    assert b"password is wrong" in texts
    assert PASSWORD.encode() not in texts
    assert b"Gu3ss" not in texts


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_cut_of_ten_minutes_loses_nothing(begin, hosts):
    seconds = 660
    running = begin(COUNTING, f"python3 trial.py {seconds} 1", trialConcurrency=3, maxTrialNumber=3)
    one_each(running, hosts)
    hosts[0].cut_for(600)
    running.wait("DONE", timeout_s=400)
    trials = running.trials()
    assert [trial["state"] for trial in trials] == ["SUCCEEDED"] * 3
    assert [[step for _, step, _ in steps_of(running, trial)] for trial in trials] == [list(range(seconds))] * 3
    assert [len(attempts_of(running, trial)) for trial in trials] == [1, 1, 1]
    assert {hosts_of(running, trial, hosts)[0] for trial in trials} == set(hosts)


STEADY = """
import signal, sys, time
import nnilite
ending = []
signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
saved = nnilite.checkpoint_dir() / "step"
for step in range(int(saved.read_text()) if saved.exists() else 0, 60):
    nnilite.report_intermediate_result({"default": step, "step": step})
    with nnilite.checkpoint("step") as path:
        path.write_text(str(step + 1))
    if ending:
        sys.exit(143)
    time.sleep(0.2)
nnilite.report_final_result(60)
"""


def drilled(running) -> list:
    """The interruptions of a drill of some seconds; it has found no fault."""
    words = ["drill", "interrupt", running.entry.id, "--rate", "1/s", "--for", "6s", "--seed", "16", "--json"]
    told = json.loads(nnictl(*words))
    assert all(0 <= one["lostSeconds"] < 60 for one in told["interruptions"])
    return told["interruptions"]


@pytest.mark.long  # every day on a scheduler of one's own, in tests/e2e
def test_a_drill_loses_and_doubles_no_metric_and_counts_as_no_retry(begin, hosts):
    running = begin(STEADY, "python3 trial.py", trialConcurrency=3, maxTrialNumber=3, maxTrialRetries=0)
    one_each(running, hosts, least=2)
    struck = drilled(running)
    running.wait("DONE", timeout_s=120)
    trials = running.trials()
    assert [(trial["state"], trial["value"]) for trial in trials] == [("SUCCEEDED", 60)] * 3
    assert 0 < len(struck) == sum(trial["attempt"] for trial in trials)
    for trial in trials:
        found = running.client.metrics(trial["id"], kind="PERIODICAL")
        assert [one["value"]["step"] for one in found] == list(range(60))
    told = json.loads(nnictl("drill", "report", running.entry.id, "--json"))
    assert {curve["outcome"] for curve in told["curves"]} == {"whole"}
    assert len(told["interruptions"]) == len(struck)


LARGE = """
import os, nnilite
os.chdir(os.environ["NNI_OUTPUT_DIR"])
os.symlink("/etc/passwd", "link")
open("notes.txt", "w").write("short")
with open("model.bin", "wb") as file:
    file.truncate(20 << 30)
nnilite.report_final_result(1)
"""


def test_a_look_at_the_files_of_a_trial_copies_none_of_a_large_folder(begin, hosts):
    running = begin(LARGE, "python3 trial.py", maxTrialNumber=1)
    running.wait("DONE", timeout_s=120)
    (trial,) = running.trials()
    files = {one["path"]: (one["size"], one["here"]) for one in running.client.files(trial["id"])}
    assert files["0/model.bin"] == (20 << 30, False)
    here = running.directory / "trials" / trial["id"]
    found: list[bytes] = []
    running.client.download(trial["id"], "0/notes.txt", found.append)
    assert b"".join(found) == b"short"
    with pytest.raises(Conflict, match=r"model.bin has 20 GB, .*nnictl trial download"):
        running.client.download(trial["id"], "0/model.bin", found.append)
    assert sum(path.stat().st_size for path in here.rglob("*") if path.is_file()) < 10_000
    assert not [path for path in here.rglob("*") if path.is_symlink()]


def test_a_function_runs_as_trials(hosts, setting, tmp_path, monkeypatch):
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    machine = {"host": hosts[1].address, "user": USER, "sshKeyFile": str(setting.key)}
    section = {"platform": "remote", "machineList": [machine], "knownHostsFile": str(setting.known_hosts)}
    check_function_on(tmp_path / "it's code", section | {"sshConfigFile": str(setting.ssh_config)})
