"""The conformance suite, through an sshd on this machine: trials share its files and processes with the tests."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nnilite.testing import ServiceContract, eventually
from nnilite.testing.bench import HOSTILE
from nnilite.testing.ports import free_port
from nnilite_remote import MachineConfig, RemoteConfig, RemoteService
from platforms.hosts.hosts import command, missing

PYTHON = str(Path(sys.executable).parent)
# SHLVL: bash then leaves the profile of the user who runs the tests alone
SSHD_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey "{folder}/host_key"
AuthorizedKeysFile "{folder}/key.pub"
PidFile none
StrictModes no
SetEnv SHLVL=2
UsePAM no
PermitRootLogin yes
MaxStartups 100
MaxSessions 100
Subsystem sftp internal-sftp
"""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    """An sshd on loopback that lets in who has the key beside it: its folder and port."""
    if missing():
        pytest.skip(missing())
    folder = tmp_path_factory.mktemp("sshd")
    for key in ("host_key", "key"):
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
    port = free_port()
    (folder / "config").write_text(SSHD_CONFIG.format(folder=folder, port=port))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd wants it, and nothing has started it here yet
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "config")], stderr=log)
    try:
        eventually(lambda: _listens(port))
        yield folder, port
    finally:
        process.terminate()
        process.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.real
@pytest.mark.timeout(120)
class TestRemoteService(ServiceContract):
    pushes = True

    @pytest.fixture
    def make_service(self, sshd, tmp_path, monkeypatch):
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        folder, port = sshd
        machine = MachineConfig("127.0.0.1", port=port, user="root", ssh_key_file=folder / "key", python_path=PYTHON)
        config = RemoteConfig(
            [machine],
            known_hosts_file=tmp_path / "known_hosts",
            ssh_config_file=folder / "config.none",
            remote_directory=str(tmp_path / HOSTILE / "worker"),
        )
        (folder / "config.none").touch()
        return lambda context: RemoteService("remote", config, context)
