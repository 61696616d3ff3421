"""Trials on hosts whose keeper was stopped, whose folder hangs, or whose spool has no end: the others do not notice."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from nnilite.service import JobState
from nnilite.testing import eventually
from platforms.disk.disk import OPEN, Disk, NoDisk

pytestmark = [pytest.mark.real, pytest.mark.timeout(150)]


def begun(bench, seconds: int, **more) -> str:
    name = bench.run(f"sleep {seconds}", **more)
    bench.wait(name, JobState.RUNNING)
    return name


def runs(host, what: str) -> bool:
    return host.run(f"pgrep -f '[s]leep {what}' || true") != ""


def test_a_job_whose_keeper_was_stopped_ends_when_it_is_canceled(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    name = begun(bench, 1235, grace_s=1)
    hosts[0].run(f"kill -STOP {bench.handles[name]['pid']}")
    bench.call(bench.service.cancel(bench.handles[name]))
    eventually(lambda: not runs(hosts[0], "1235"), 30)
    assert bench.wait(name, limit_s=60).state is JobState.LOST


def test_the_next_attempt_never_runs_beside_one_that_was_given_up(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    job = bench.job("sleep 1236")
    bench.submit(job)
    bench.wait(job.name, JobState.RUNNING)
    hosts[0].run(f"kill -STOP {bench.handles[job.name]['pid']}")
    second = job.name.removesuffix("-0") + "-1"
    command = "pgrep -f '[s]leep 1236' && exit 4; exit 3"
    bench.receiver.expect(second, str(job.spec["token"]))
    bench.submit(
        replace(job, name=second, attempt=1, spec={**job.spec, "job": second, "attempt": 1, "command": command})
    )
    assert bench.wait(second, limit_s=60).exit_code == 3
    assert not runs(hosts[0], "1236")


def test_a_folder_that_hangs_makes_its_own_job_unknown_and_no_other(hosts, setting, bench_of, tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        disk = Disk(folder)
    except NoDisk as reason:
        pytest.skip(str(reason))
    hosts[0].share(folder, "/disk")
    hosts[0].preload("/disk/faulty_disk.so")
    try:
        bench = bench_of(setting.config(setting.machine(hosts[0])))
        hung, other = begun(bench, 1237), begun(bench, 1238)
        disk.watch("hung", bench.handles[hung]["directory"])
        disk.slow("hung", OPEN, delay_s=30)
        assert "no answer within" in bench.wait(hung, JobState.UNKNOWN).reason
        began = time.monotonic()
        assert bench.wait(bench.run("exit 3")).exit_code == 3
        assert bench.status(other).state is JobState.RUNNING
        assert time.monotonic() - began < 15
        disk.heal()
        bench.wait(hung, JobState.RUNNING, limit_s=60)
    finally:
        hosts[0].run("rm -f /etc/ld.so.preload")


def test_a_spool_of_sixty_gigabytes_is_not_copied(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    spool = 'echo "final 1" > .nni/metrics; truncate -s 60G .nni/metrics'
    name = bench.run(f'cd "$NNI_OUTPUT_DIR"; {spool}; exit 3')
    assert bench.finish(name).values == [1]
    events = bench.call(bench.service.reports(bench.handles[name]), 60)
    assert [event.value for event in events if hasattr(event, "value")] == [1]
    assert "more than 64 MB that are not reports" in events[-1].message
