"""Hosts that run Windows are refused at the start, in words."""

from __future__ import annotations

import pytest

paramiko = pytest.importorskip("paramiko")

from nnilite.errors import ConfigError  # noqa: E402
from nnilite.testing import ServiceBench  # noqa: E402
from nnilite_remote import MachineConfig, RemoteConfig, RemoteService  # noqa: E402
from platforms.hosts.windows import CMD, POWERSHELL, WindowsHost  # noqa: E402

REFUSAL = "runs Windows, on which trials cannot run yet: use Linux, macOS or WSL"


@pytest.fixture
def refused(tmp_path):
    """What is said at the start of an experiment on a Windows host, and how often it was signed in to."""
    hosts = []

    def ask(version: str, complaint: bytes = CMD) -> tuple[str, int]:
        hosts.append(WindowsHost(version, complaint))
        machine = MachineConfig("127.0.0.1", port=hosts[-1].port, user="me", password="hush")
        (tmp_path / "config").touch()
        config = RemoteConfig([machine], known_hosts_file=tmp_path / "known", ssh_config_file=tmp_path / "config")
        bench = ServiceBench(tmp_path, lambda context: RemoteService("remote", config, context))
        with pytest.raises(ConfigError) as caught:
            bench.__enter__()
        bench.__exit__()
        return str(caught.value), hosts[-1].server.sign_ins

    yield ask
    for host in hosts:
        host.close()


def test_windows_own_sshd_is_known_by_its_version_and_gets_no_password(refused):
    said, sign_ins = refused("OpenSSH_for_Windows_9.5")
    assert said.endswith(REFUSAL)
    assert sign_ins == 0


@pytest.mark.parametrize("complaint", [CMD, POWERSHELL], ids=["cmd", "PowerShell"])
def test_another_sshd_on_windows_is_known_by_its_shell(refused, complaint):
    said, _ = refused("9.99 FlowSsh: Bitvise SSH Server (WinSSHD) 9.99", complaint)
    assert said.endswith(REFUSAL)
