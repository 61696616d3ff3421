"""Whole experiments: the real manager, a real redis-server, workers as their users start them, real trials."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from function_programs import check_function_on
from nnilite.testing import eventually

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "redis"

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

BEATING = """
import fcntl, os, sys, time
import nnilite
log, steps = open(sys.argv[1], "a"), int(sys.argv[2])
for step in range(steps):
    fcntl.flock(log, fcntl.LOCK_EX)
    log.write("%s %s %f\\n" % (os.environ["NNI_TRIAL_JOB_ID"], os.environ["NNILITE_ATTEMPT"], time.time()))
    log.flush()
    fcntl.flock(log, fcntl.LOCK_UN)
    nnilite.report_intermediate_result(step)
    time.sleep(0.1)
nnilite.report_final_result(steps)
"""


@pytest.fixture
def begin(start, tmp_path, prefix):
    """Start an experiment on the pool of the test, whose trials beat in a file for so many steps."""

    def make(server, steps: int, service=None, **config):
        beats = tmp_path / "beats"
        beats.touch()
        command = shlex.join([sys.executable, "trial.py", str(beats), str(steps)])
        section = {"platform": "redis", "redis": server.url, "prefix": prefix, **(service or {})}
        return start(BEATING, trialCommand=command, trainingService=section, **{"gracePeriod": 1, **config})

    return make


def spans(tmp_path) -> dict[str, dict[int, tuple[float, float]]]:
    """By trial and attempt, the times of the first and the last beat."""
    found: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
    for line in (tmp_path / "beats").read_text().splitlines():
        trial, attempt, when = line.split()
        first, _ = found[trial].get(int(attempt), (float(when), 0.0))
        found[trial][int(attempt)] = (first, float(when))
    return found


def check_each_metric_once(running, steps: int) -> None:
    for trial in running.trials():
        assert (trial["state"], trial["value"]) == ("SUCCEEDED", steps), trial
        values = defaultdict(list)
        for one in running.client.metrics(trial["id"], kind="PERIODICAL"):
            values[one["attempt"]].append(one["value"])
        assert values.pop(max(values)) == list(range(steps))
        assert all(given == list(range(len(given))) for given in values.values())


@pytest.mark.long  # each of the three by itself every day, in test_failures
def test_of_four_workers_one_is_killed_one_stopped_and_one_cut_off(
    begin, shared_server, cable, start_worker, tmp_path, record_property
):
    workers = [start_worker(url) for url in (shared_server.url, shared_server.url, cable.url, shared_server.url)]
    settings = {"trialConcurrency": 8, "maxTrialNumber": 8, "maxTrialRetries": 3}
    running = begin(shared_server, 40, {"workerHealthyPeriod": "4s"}, **settings)
    eventually(lambda: len(spans(tmp_path)) >= 8)
    workers[0].kill()
    workers[1].signal(signal.SIGSTOP)
    cable.cut()
    running.wait_for(lambda: sum(len(found) > 1 for found in spans(tmp_path).values()) >= 4, 90)
    workers[1].signal(signal.SIGCONT)
    cable.mend()
    running.wait("DONE", timeout_s=150)
    check_each_metric_once(running, 40)
    again = [found for found in spans(tmp_path).values() if len(found) > 1]
    for found in again:
        times = [found[number] for number in sorted(found)]
        assert all(before[1] < after[0] for before, after in itertools.pairwise(times)), found
    record_property("shown", f"redis: three of four workers fell silent, {len(again)} of 8 trials were tried again")


@pytest.mark.long  # every day the contract has a restarted manager, and tests/e2e one that is killed
def test_a_manager_that_is_killed_and_resumed_finds_its_trials(begin, shared_server, start_worker, tmp_path):
    start_worker(shared_server.url)
    running = begin(shared_server, 30, maxTrialNumber=4)
    eventually(lambda: len(spans(tmp_path)) == 2)
    running.kill_manager()
    again = running.resume()
    again.wait("DONE", timeout_s=90)
    check_each_metric_once(again, 30)
    with contextlib.closing(sqlite3.connect(again.directory / "nnilite.sqlite")) as database:
        attempts = database.execute("SELECT * FROM attempts").fetchall()
    assert all(set(found) == {0} for found in spans(tmp_path).values()), attempts


@pytest.mark.long  # every day in test_failures, without an experiment
def test_a_server_that_is_killed_in_mid_run_costs_no_trial(begin, own_server, start_worker, tmp_path):
    for _ in range(2):
        start_worker(own_server.url)
    running = begin(own_server, 40, trialConcurrency=6, maxTrialNumber=6)
    eventually(lambda: len(spans(tmp_path)) == 4)
    own_server.kill()
    at = len((tmp_path / "beats").read_text())
    eventually(lambda: len((tmp_path / "beats").read_text()) > at + 100)
    own_server.start()
    running.wait("DONE", timeout_s=120)
    check_each_metric_once(running, 40)
    assert all(set(found) == {0} for found in spans(tmp_path).values())


def test_trials_report_through_redis_also_where_a_log_was_asked_for(begin, shared_server, start_worker):
    start_worker(shared_server.url)
    running = begin(shared_server, 5, callback="log", trialConcurrency=2, maxTrialNumber=2)
    running.wait("DONE", timeout_s=90)
    check_each_metric_once(running, 5)


def test_trials_say_their_place_and_workers_are_listed_by_the_manager(begin, shared_server, start_worker):
    running = begin(shared_server, 5, trialConcurrency=3, maxTrialNumber=3)
    place = "3rd in the queue; no worker has joined"
    running.wait_for(lambda: place in " ".join(trial["reason"] for trial in running.trials()))
    worker = start_worker(shared_server.url)
    running.wait("DONE", timeout_s=90)
    [host] = running.client.profile()["hosts"]
    assert (host["name"], host["state"], host["details"]["processors"]) == (worker.name, "up", 2)


def test_the_example_runs_with_two_workers(shared_server, prefix, start_worker, tmp_path, monkeypatch):
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    for _ in range(2):
        start_worker(shared_server.url)
    config = yaml.safe_load((EXAMPLE / "config.yaml").read_text())
    config["trainingService"] |= {"redis": shared_server.url, "prefix": prefix}
    config["maxTrialNumber"] = 4  # each imports scikit-learn
    place = tmp_path / "config.yaml"
    place.write_text(yaml.safe_dump({**config, "trialCodeDirectory": str(EXAMPLE)}))
    nnictl = [sys.executable, "-m", "nnilite._cli"]
    create = [*nnictl, "create", "--config", str(place), "--port", "0", "--foreground"]
    ran = subprocess.run(create, env=dict(os.environ), capture_output=True, text=True, timeout=150)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    shown = subprocess.run([*nnictl, "experiment", "list", "--all", "--json"], capture_output=True, text=True)
    [found] = json.loads(shown.stdout)
    asked = [*nnictl, "experiment", "status", found["id"], "--json"]
    counts = json.loads(subprocess.run(asked, capture_output=True, text=True).stdout)["counts"]
    assert counts["SUCCEEDED"] == 4


@pytest.mark.long  # every day on SSH hosts: what carries a function is code like all other
def test_a_function_runs_as_trials(shared_server, prefix, start_worker, tmp_path, monkeypatch):
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here'"))
    start_worker(shared_server.url)
    section = {"platform": "redis", "redis": shared_server.url, "prefix": prefix}
    check_function_on(tmp_path / "it's code", section)
