"""Modules that SSH hosts import once for all trials there: the trials, and what may be killed or lost meanwhile."""

from __future__ import annotations

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.testing import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

COMMAND = "python3 trial.py"
SCRIPT = """import json, os, sys, time, nnilite
with open("/proc/%d/cmdline" % os.getppid()) as file:
    parent = file.read().split(chr(0))[0]
nnilite.report_intermediate_result({"default": 0, "parent": parent, "found": "decimal" in sys.modules})
until = nnilite.get_next_parameter().get("until")
while until and not os.path.exists(until):
    time.sleep(0.02)
nnilite.report_final_result(1)
sys.exit(4)
"""
WARM = [{"default": 0, "parent": "nnilite preloader:", "found": True}, 1]


@pytest.fixture
def preloading(setting, bench_of):
    """Opens a service whose machines, on these hosts, preload a module."""

    def make(*hosts, modules=("decimal",), command=COMMAND, **more):
        config = setting.config(*map(setting.machine, hosts), preload=list(modules), **more)
        return bench_of(config, command, SCRIPT)

    return make


def preloaders(host) -> list[str]:
    return host.run("pgrep -f '^nnilite preloader:' || true").split()


@pytest.fixture
def hosts(hosts):
    for host in hosts:
        host.run("rm -f '/tmp/go on'")
    return hosts


def begin(bench) -> str:
    """Start a trial that waits for a file on its host; return its name once it runs."""
    name = bench.run(COMMAND, parameters={"until": "/tmp/go on"})
    eventually(lambda: bench.received(name).values)
    return name


def trials(host) -> list[str]:
    return host.run("pgrep -f '^python3 trial.py' || true").split()


def is_warm(bench) -> bool:
    return bench.finish(bench.run(COMMAND)).values == WARM


def test_trials_start_as_forks_of_a_preloader_on_each_host(hosts, preloading):
    bench = preloading(*hosts)
    eventually(lambda: all(machine.state == "up" for machine in bench.service.hosts()))
    names = [bench.run(COMMAND) for _ in range(6)]
    assert [bench.finish(name).values for name in names] == [WARM] * 6
    assert all(bench.wait(name).exit_code == 4 for name in names)
    assert len({bench.handles[name]["machine"] for name in names}) == 3
    assert [len(preloaders(host)) for host in hosts] == [1, 1, 1]
    bench.close()
    eventually(lambda: not any(map(preloaders, hosts)))
    bench.restart()


def test_only_hosts_that_can_import_the_modules_get_trials(hosts, preloading):
    place = hosts[0].run("python3 -c 'import site; print(site.getsitepackages()[0])'").strip()
    hosts[0].run(f"mkdir -p {place}; echo x = 1 > {place}/only_here.py; chmod -R a+rX {place}")
    bench = preloading(*hosts[:2], modules=["decimal", "only_here"])
    eventually(lambda: bench.service.hosts()[1].state == "down")
    said = "cannot preload: only_here cannot be imported by /usr/bin/python3: ModuleNotFoundError"
    assert bench.service.hosts()[1].reason.startswith(said)
    assert bench.service.hosts()[1].reason.endswith("install what is missing, or take it out of `preload`")
    names = [bench.run(COMMAND) for _ in range(2)]
    assert [bench.finish(name).values for name in names] == [WARM] * 2
    assert {bench.handles[name]["machine"] for name in names} == {bench.handles[names[0]]["machine"]}


def test_a_module_that_no_host_has_is_refused_with_the_hosts_and_the_field(hosts, preloading):
    with pytest.raises(ConfigError, match="cannot preload: no_such_module cannot be imported") as caught:
        preloading(*hosts[:2], modules=["no_such_module"])
    assert caught.value.place.field == "preload"
    assert all(host.address in str(caught.value) for host in hosts[:2])


def test_a_command_that_is_no_start_of_python_is_refused_without_a_connection(hosts, preloading):
    with pytest.raises(ConfigError, match=r"preload: has no effect, as the trial command './trial\.sh' does"):
        preloading(hosts[0], command="./trial.sh")


@pytest.mark.parametrize("killed", ["^nnilite preloader:", "keeper-.* serve"])
def test_a_killed_preloader_or_fork_server_takes_no_trial_with_it(hosts, preloading, killed):
    bench = preloading(hosts[0])
    name = begin(bench)
    before = preloaders(hosts[0])
    victim = hosts[0].run(f"pgrep -o -f '{killed}'").strip()
    hosts[0].run(f"kill -9 {victim}")
    eventually(lambda: hosts[0].run(f"grep State /proc/{victim}/status || true").split()[1:2] in ([], ["Z"]))
    assert is_warm(bench)
    assert set(preloaders(hosts[0])) - set(before)
    hosts[0].run("touch '/tmp/go on'")
    assert bench.finish(name).values == WARM
    assert bench.wait(name).exit_code == 4
    eventually(lambda: len(preloaders(hosts[0])) == 1)


def test_a_canceled_trial_ends_alone(hosts, preloading):
    bench = preloading(hosts[0])
    name = begin(bench)
    assert len(trials(hosts[0])) == 1
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED
    assert not trials(hosts[0])
    assert is_warm(bench)


def test_the_trial_of_a_killed_keeper_is_ended(hosts, preloading):
    bench = preloading(hosts[0])
    name = begin(bench)
    hosts[0].run(f"kill -9 {bench.handles[name]['pid']}")
    status = bench.wait(name, limit_s=60)
    assert (status.state, status.reason) == (JobState.LOST, "its keeper was killed")
    assert not trials(hosts[0])
    assert is_warm(bench)


def test_a_lost_connection_ends_no_trial_and_the_next_one_preloads_again(hosts, preloading):
    bench = preloading(hosts[0])
    name = begin(bench)
    before = preloaders(hosts[0])
    hosts[0].kill_sessions()
    eventually(lambda: set(preloaders(hosts[0])) - set(before))
    eventually(lambda: bench.service.hosts()[0].state == "up")
    assert is_warm(bench)
    assert bench.status(name).state is JobState.RUNNING
    hosts[0].run("touch '/tmp/go on'")
    assert bench.finish(name).values == WARM
    assert bench.wait(name).exit_code == 4
    eventually(lambda: preloaders(hosts[0]) and not set(preloaders(hosts[0])) & set(before))
