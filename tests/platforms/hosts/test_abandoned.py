"""Hosts of a run that was killed are removed by the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nnilite.testing import eventually
from platforms.hosts import hosts
from platforms.hosts.hosts import Host, Network, command

PROGRAM = """
import sys
from platforms.hosts.hosts import Network
network = Network()
network.open()
network.host()
print(network.folder, network.namespace(network.hosts[0]), network.bridge, network.hosts[0].init, flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.process


def test_what_a_killed_run_leaves_is_removed_and_what_others_use_is_not(network: Network, booted: list[Host]) -> None:
    for host in booted:  # an earlier test may have left one without power
        host.repair()
    environment = {**os.environ, "PYTHONPATH": str(Path(hosts.__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        folder, namespace, bridge, init = run.stdout.readline().split()
        hosts.remove_abandoned()
        assert Path("/proc", init).exists()
        run.send_signal(signal.SIGKILL)
    assert Path(folder).is_dir()
    assert Path("/proc", init).exists()
    hosts.remove_abandoned()
    assert not Path(folder).exists()
    assert namespace not in command("ip", "netns", "list")
    assert bridge not in command("ip", "link")
    eventually(lambda: not Path("/proc", init).exists())
    assert network.folder.is_dir()
    assert all(host.run("echo here") == "here\n" for host in booted)
