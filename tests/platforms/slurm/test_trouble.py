"""What a real Slurm refuses, and a slurmctld that is away."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nnilite.errors import ConfigError, NoCapacity
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_slurm import SlurmService
from platforms.slurm.test_trials import attempt_of, find_job

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

REFUSED = [
    ({"partition": "nope"}, "partition", "invalid partition specified: nope"),
    ({"gres": "gpu:9"}, None, "no node that is up has what a trial asks for"),
    ({"gres": "tpu:1"}, "gres", "Invalid generic resource (gres) specification"),
    ({"constraint": "a100"}, "constraint", "Invalid feature specification"),
    (
        {"partition": "short", "time_limit": 600},
        "timeLimit",
        "is 10m 00s, and the partition short allows 5m 00s at most",
    ),
    ({"reservation": "monday"}, "reservation", "Requested reservation is invalid"),
    ({"nodes": 9}, None, "no node that is up has what a trial asks for"),
    ({"cpus": 900}, None, "no node that is up has what a trial asks for"),
    ({"sbatch_lines": ["--no-such-option=1"]}, "sbatchLines", "unrecognized option '--no-such-option=1'"),
    ({"job_array_size": 400}, "jobArraySize", "Invalid job array specification"),
    ({"slurm_path": "/no/such/folder", "directory": "/dev/null/x"}, "directory", "cannot be created on this machine"),
]


@pytest.mark.parametrize(("fields", "place", "words"), REFUSED, ids=lambda one: str(one)[:40])
def test_what_slurm_will_never_take_is_said_at_the_start(open_bench, fields, place, words):
    with pytest.raises(ConfigError) as caught:
        open_bench(**fields)
    assert caught.value.place.field == place
    assert words in caught.value.message


def test_a_machine_without_slurm_is_said_with_the_cure(open_bench, monkeypatch, tmp_path):
    for program in ("sh", "mkdir", "id"):
        (tmp_path / program).symlink_to(f"/bin/{program}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"this machine has no sbatch: set login .* or slurmPath"):
        open_bench()


def old_slurm(folder: Path) -> Path:
    """A folder with squeue and sacct as they were before they knew JSON."""
    folder.mkdir()
    for name in ("squeue", "sacct"):
        program = folder / name
        refuse = f"*' --json '*) echo \"{name}: unrecognized option '--json'\" >&2; exit 1"
        program.write_text(f'#!/bin/sh\ncase " $* " in {refuse} ;; esac\nexec /usr/bin/{name} "$@"\n')
        program.chmod(0o755)
    return folder


def test_a_slurm_without_json_is_asked_for_text(open_bench, tmp_path, slurm):
    bench = open_bench(slurm_path=str(old_slurm(tmp_path / "old")))
    waiting = bench.run("sleep 60")
    assert bench.wait(waiting, JobState.RUNNING).host == "here"
    assert bench.service.api.json is False
    slurm.command("scancel", bench.handles[waiting]["id"])
    assert bench.wait(waiting).reason == "Slurm: CANCELLED"


def test_a_listing_that_grows_too_long_is_asked_for_as_text(open_bench, monkeypatch):
    monkeypatch.setattr("nnilite_slurm._api._JSON_MAX_BYTES", 100)
    bench = open_bench()
    assert bench.wait(bench.run("exit 3")).exit_code == 3
    assert bench.service.api.json is False


def test_jobs_are_unknown_while_slurmctld_is_away_and_go_on(open_bench, slurm):
    bench = open_bench(nni_manager_ip=None)
    name = bench.submit(find_job(bench, f"{bench.until('go')}; exit 7"))
    bench.wait(name, JobState.RUNNING)
    slurm.await_saved()
    slurm.stop("slurmctld", 9)
    try:
        status = bench.call(bench.service.poll([bench.handles[name]]))[0]
        assert status.state is JobState.UNKNOWN
        assert "Slurm does not answer" in status.reason
        assert bench.service.hosts()[0].state == "down"
        bench.give("go")
    finally:
        slurm.start("slurmctld", ["slurmctld", "-D"])
        eventually(lambda: slurm.idle() == 1)
    assert bench.wait(name).exit_code == 7


def test_a_job_that_slurm_has_forgotten_ended_as_its_keeper_said(open_bench):
    bench = open_bench(nni_manager_ip=None)
    ended = bench.submit(find_job(bench, "exit 3"))
    bench.wait(ended)
    handle = {**bench.handles[ended], "id": "4000000"}
    bench.restart()
    assert bench.call(bench.service.poll([handle]))[0].exit_code == 3


def test_a_job_without_any_word_is_lost_only_after_files_had_time_to_be_seen(open_bench, monkeypatch):
    bench = open_bench(nni_manager_ip=None)
    name = bench.submit(find_job(bench, "sleep 60"))
    bench.wait(name, JobState.RUNNING)
    owner = attempt_of(bench, name) / "owner"
    number = owner.read_text()
    owner.write_text("4000000\n")
    bench.restart()
    first = bench.status(name)
    assert (first.state, first.reason) == (JobState.UNKNOWN, "Slurm does not list the job")
    monkeypatch.setattr("nnilite.services.cluster.queue_watch.SHOWN_LATE_S", 0.0)
    assert bench.status(name).state is JobState.LOST
    owner.write_text(number)
    bench.restart()


def test_the_check_of_a_dry_run_asks_slurm_and_leaves_nothing(maker, open_bench, tmp_path):
    bench = open_bench()
    service = maker(partition="nope", directory=str(tmp_path / "unused"))(bench.context())
    assert "nope" in str(bench.refusal(service.check()))
    bench.call(maker(directory=str(tmp_path / "unused"))(bench.context()).check())
    assert not (tmp_path / "unused").exists()
    assert "SLURM_CONF" in os.environ


def test_a_manager_that_nodes_cannot_reach_is_refused_with_the_cure(maker, open_bench):
    bench = open_bench()
    config = replace(bench.service.config, nni_manager_ip=None)
    error = bench.refusal(SlurmService("slurm", config, bench.context()).open())
    assert isinstance(error, ConfigError)
    assert error.place.field == "nniManagerIp"
    assert "set callback: log" in error.message


@pytest.fixture
def limit_jobs(slurm):
    """Sets MaxJobCount to a few jobs more than Slurm knows, or back to what it was. Slurm forgets no job for 300 s."""

    def set_limit(full: bool) -> None:
        known = len(slurm.command("squeue", "-h", "--states=all", "-r").splitlines())
        slurm.stop("slurmctld")
        lines = [one for one in slurm.conf.read_text().splitlines() if not one.startswith("MaxJobCount")]
        slurm.conf.write_text("\n".join([*lines, *[f"MaxJobCount={known + 3}"] * full, ""]))
        slurm.start("slurmctld", ["slurmctld", "-D"])
        eventually(lambda: slurm.idle() == 1)

    yield set_limit
    set_limit(False)


def test_a_full_slurm_says_so_at_once_and_takes_the_trial_later(open_bench, limit_jobs, monkeypatch):
    monkeypatch.setattr("nnilite_slurm._api._FULL_PAUSE_S", 0.0)
    bench = open_bench(nni_manager_ip=None)
    limit_jobs(True)
    taken = bench.submit(find_job(bench, "true"))
    for _ in range(4):
        later, begun_s = find_job(bench, "exit 3"), time.monotonic()
        try:
            bench.submit(later)
        except NoCapacity as error:
            refusal = str(error)
            break
    assert re.search(r"\(MaxJobCount\); it says: Slurm (temporarily unable to accept job|job queue full)$", refusal)
    # sbatch itself would try for two minutes.
    assert time.monotonic() - begun_s < 20
    assert bench.wait(taken).state is JobState.SUCCEEDED
    limit_jobs(False)
    assert bench.wait(bench.submit(later)).exit_code == 3
