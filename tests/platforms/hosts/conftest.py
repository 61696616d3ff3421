"""Three hosts for all tests of a run, and a service on them for each test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nnilite.errors import NniliteError
from nnilite.service import ServiceContext
from nnilite.testing import ServiceBench
from nnilite_remote import MachineConfig, RemoteConfig, RemoteService
from platforms.hosts.hosts import USER, Host, Network, missing


@pytest.fixture(scope="session")
def network():
    """A bridge to join hosts; skips where none can be made."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    network = Network()
    try:
        network.open()
        yield network
    finally:
        network.close()


@pytest.fixture(scope="session")
def booted(network):
    """The hosts; the second one has a home with a space and a dollar sign in its path."""
    return [network.host(), network.host(home="/data/home/it $x"), network.host()]


@pytest.fixture
def hosts(booted):
    """The hosts, all well and without files of other tests."""
    for host in booted:
        host.repair()
    return booted


class Setting:
    """The user's side of SSH for one test: the known hosts, the configuration file, the key."""

    def __init__(self, folder: Path, key: Path) -> None:
        self.folder = folder
        self.key = key
        self.known_hosts = folder / "known hosts"
        self.ssh_config = folder / "config"
        self.ssh_config.write_text("")

    def machine(self, host: Host, **more: object) -> MachineConfig:
        """A host as the experiment's config names it."""
        if not {"password", "ssh_key_file"} & set(more):
            more["ssh_key_file"] = self.key
        address = more.pop("address", host.address)
        return MachineConfig(host=address, user=USER, **more)

    def config(self, *machines: MachineConfig, **more: object) -> RemoteConfig:
        files = {"known_hosts_file": self.known_hosts, "ssh_config_file": self.ssh_config}
        return RemoteConfig(list(machines), **{**files, **more})


@pytest.fixture
def setting(tmp_path, network, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    folder = tmp_path / "ssh"
    folder.mkdir()
    return Setting(folder, network.key)


@pytest.fixture
def bench_of(tmp_path):
    """Opens a service with a config, in surroundings that go with the test."""
    made, benches = [], []

    def make(config: RemoteConfig, command: str = "", script: str = "", **more: bool) -> ServiceBench:
        made.append(config)
        folder = tmp_path / str(len(made))

        def open_service(context: ServiceContext) -> RemoteService:
            return RemoteService("remote", config, replace(context, defaults={"trialCommand": command}))

        bench = ServiceBench(folder, open_service, **more)
        (bench.code / "trial.py").write_text(script)
        try:
            bench.__enter__()
        except NniliteError:
            bench.__exit__()
            raise
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.__exit__()
