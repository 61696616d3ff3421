"""A Slurm of one node for the tests of one process, and a lab of hosts for those that need several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nnilite.service import ServiceContext
from nnilite.testing import ServiceBench
from nnilite.testing.bench import HOSTILE
from nnilite_slurm import SlurmConfig, SlurmService
from platforms.hosts.hosts import USER, Network
from platforms.slurm import lab
from platforms.slurm.daemons import SlurmHere, missing
from platforms.slurm.lab import SlurmLab


@pytest.fixture(scope="session")
def slurm_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmHere]:
    """A Slurm whose node is this machine."""
    if missing():
        pytest.skip(missing())
    cluster = SlurmHere(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.open()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def slurm(slurm_here: SlurmHere, monkeypatch: pytest.MonkeyPatch) -> SlurmHere:
    """The same, and the commands of Slurm find it."""
    monkeypatch.setenv("SLURM_CONF", str(slurm_here.conf))
    return slurm_here


@pytest.fixture
def maker(slurm: SlurmHere, tmp_path: Path) -> Callable[..., Callable[[ServiceContext], SlurmService]]:
    """Makes services of that Slurm, with these fields of the section."""

    def make(**fields: Any) -> Callable[[ServiceContext], SlurmService]:
        usual = {"directory": str(tmp_path / HOSTILE / "shared"), "nni_manager_ip": "127.0.0.1", "keep": "nothing"}
        config = SlurmConfig(**{**usual, **fields})
        defaults = {"callback": "log"} if fields.get("nni_manager_ip", "") is None else {}
        return lambda context: SlurmService("slurm", config, replace(context, defaults=defaults))

    return make


@pytest.fixture
def open_bench(maker: Callable[..., Any], tmp_path: Path) -> Iterator[Callable[..., ServiceBench]]:
    """Opens a bench with these fields of the section."""
    opened: list[ServiceBench] = []

    def make(**fields: Any) -> ServiceBench:
        bench = ServiceBench(tmp_path / f"bench {len(opened)}", maker(**fields))
        opened.append(bench)
        return bench.__enter__()

    yield make
    for bench in opened:
        bench.__exit__()


@pytest.fixture(scope="session")
def whole_lab() -> Iterator[SlurmLab]:
    """A Slurm of several hosts; skips where none can be made."""
    if lab.missing():
        pytest.skip(lab.missing())
    network = Network()
    found = SlurmLab(network)
    try:
        network.open()
        found.open()
        yield found
    finally:
        found.close()
        network.close()


@pytest.fixture
def slurm_lab(whole_lab: SlurmLab) -> SlurmLab:
    """The same, all well and without jobs and files of other tests."""
    whole_lab.repair()
    return whole_lab


@pytest.fixture
def login(slurm_lab, tmp_path, monkeypatch):
    """The section `login` for the head."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    files = {"knownHostsFile": str(tmp_path / "known"), "sshConfigFile": str(tmp_path / "config")}
    (tmp_path / "config").touch()
    return {"host": slurm_lab.head.address, "user": USER, "sshKeyFile": str(slurm_lab.network.key), **files}


@pytest.fixture
def begin(start, login):
    """Start an experiment whose trials are jobs on the lab and report by their folders."""

    def make(code: str, command: str, service=None, **config):
        section = {"platform": "slurm", "login": login, "memory": "100mb", **(service or {})}
        return start(code, trialCommand=command, trainingService=section, **{"callback": "log", **config})

    return make
