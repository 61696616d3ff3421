"""Which host gets a trial, and what a waiting trial is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnilite.errors import ConfigError, NoCapacity
from nnilite.service import JobState
from nnilite.testing import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]


def machines_of(bench) -> list[str]:
    return sorted(handle["machine"].split("@")[1].rstrip(":") for handle in bench.handles.values())


def test_trials_are_spread_over_the_hosts(hosts, setting, bench_of):
    bench = bench_of(setting.config(*(setting.machine(host) for host in hosts)))
    eventually(lambda: all(host.state == "up" for host in bench.service.hosts()))
    for _ in range(6):
        bench.run("sleep 20")
    assert machines_of(bench) == sorted([host.address for host in hosts] * 2)


def test_slots_bound_a_host_and_a_waiting_trial_says_so(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0], slots=2), setting.machine(hosts[1], slots=1)))
    eventually(lambda: all(host.state == "up" for host in bench.service.hosts()))
    names = [bench.run("sleep 20") for _ in range(3)]
    refused = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(refused, NoCapacity)
    assert f"{hosts[0].address} runs 2 of 2 trials (slots)" in str(refused)
    bench.call(bench.service.cancel(bench.handles[names[0]]))
    bench.wait(names[0])
    bench.run("true")


def test_a_trial_runs_where_its_labels_are(hosts, setting, bench_of):
    labelled = setting.machine(hosts[2], labels=["big", "a100"])
    bench = bench_of(setting.config(setting.machine(hosts[0]), labelled))
    eventually(lambda: all(host.state == "up" for host in bench.service.hosts()))
    for _ in range(3):
        bench.run("sleep 20", parameters={"x": 1, "_machineLabels": ["big"]})
    assert machines_of(bench) == [hosts[2].address] * 3
    wrong = bench.job("true", parameters={"_machineLabels": "v100"})
    assert isinstance(bench.refusal(bench.service.submit(wrong)), ConfigError)


@pytest.fixture
def gpus(hosts, nvml_folder):
    """Gives hosts simulated GPUs: `gpus(host, *lines)`, lines as in nvml.c."""
    library = (nvml_folder / "libnvidia-ml.so.1").read_bytes()
    touched = []

    def describe(host, *lines):
        root = Path(f"/proc/{host.init}/root")
        (root / "usr/lib/libnvidia-ml.so.1").write_bytes(library)
        (root / "etc/gpus").write_text("".join(f"{line}\n" for line in lines))
        if host not in touched:
            touched.append(host)
            host.reconfigure("echo SetEnv SIMULATED_GPUS=/etc/gpus >> /etc/ssh/sshd_config")

    yield describe
    for host in touched:
        host.reconfigure("rm -f /usr/lib/libnvidia-ml.so.1 /etc/gpus; sed -i /SIMULATED_GPUS/d /etc/ssh/sshd_config")


def visible(bench, name) -> str:
    return bench.finish(name).values[0]


SHOW = "python3 -c 'import os, nnilite; nnilite.report_final_result(os.environ[\"CUDA_VISIBLE_DEVICES\"])'; sleep 20"


def test_gpus_are_handed_out_over_the_hosts(hosts, setting, bench_of, gpus):
    gpus(hosts[0], "gpu A 1000 0 0", "gpu B 1000 0 0")
    gpus(hosts[1], "gpu C 1000 0 0")
    config = setting.config(*(setting.machine(host) for host in hosts[:2]), trial_gpu_number=1)
    bench = bench_of(config)
    eventually(lambda: all(host.state == "up" for host in bench.service.hosts()))
    names = [bench.run(SHOW, gpus=1) for _ in range(3)]
    eventually(lambda: all(bench.received(name).values for name in names))
    given = sorted((bench.handles[n]["machine"], bench.received(n).values[0]) for n in names)
    assert [gpu for _, gpu in given] == [0, 1, 0]
    refused = str(bench.refusal(bench.service.submit(bench.job("true", gpus=1))))
    assert "GPU 0, 1 runs a trial" in refused
    assert hosts[1].address in refused


def test_gpus_that_others_use_are_left_alone(hosts, setting, bench_of, gpus):
    gpus(hosts[0], "gpu A 1000 500 90", "gpu B 1000 0 0", "compute 0 1 500")
    bench = bench_of(setting.config(setting.machine(hosts[0]), trial_gpu_number=1))
    name = bench.run(SHOW, gpus=1)
    eventually(lambda: bench.received(name).values == [1])
    refused = str(bench.refusal(bench.service.submit(bench.job("true", gpus=1))))
    assert "GPU 0 is used by process 1" in refused
    assert "useActiveGpu" in refused


def test_gpus_that_no_host_has_are_told_at_the_start(hosts, setting, bench_of, gpus):
    gpus(hosts[0], "gpu A 1000 0 0")
    with pytest.raises(ConfigError, match="a trial needs 2 GPUs, but this machine has 1"):
        bench_of(setting.config(setting.machine(hosts[0]), trial_gpu_number=2))
    with pytest.raises(ConfigError, match="no NVIDIA driver"):
        bench_of(setting.config(setting.machine(hosts[1]), trial_gpu_number=1))


def test_a_job_that_nobody_runs_any_more_frees_its_slot_after_a_restart(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0], slots=1)))
    bench.run("sleep 20")
    bench.restart()
    job = bench.job("true")
    assert isinstance(bench.refusal(bench.service.submit(job)), NoCapacity)
    [name] = bench.handles
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED
    bench.submit(job)
