"""Getting into hosts: keys, passwords, ssh-agent, ~/.ssh/config, jump hosts, host keys."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from nnilite.errors import ConfigError
from nnilite.ssh.connect import connect
from nnilite.ssh.errors import MachineError
from nnilite.ssh.route import RouteMap
from nnilite_remote import HostKeyPolicy, MachineConfig
from nnilite_remote._config import RemoteConfig
from platforms.hosts.hosts import PASSWORD, USER, command

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]


def signs_in(config: RemoteConfig) -> bool:
    """Whether the first machine of the config lets us in. Raises: MachineError."""
    connection = connect(RouteMap(config).hops(config.machine_list[0]), config.host_key_policy)
    connection.close()
    return True


def refusal(config: RemoteConfig) -> str:
    with pytest.raises(MachineError) as caught:
        signs_in(config)
    assert caught.value.lasting
    return str(caught.value)


@pytest.fixture
def locked_key(setting, hosts):
    """A key with the passphrase `open sesame` that the first host lets in."""
    place = setting.folder / "locked"
    command("ssh-keygen", "-q", "-t", "ed25519", "-N", "open sesame", "-f", str(place))
    public = place.with_name("locked.pub").read_text().strip()
    hosts[0].run(
        f"cp {hosts[0].home}/.ssh/authorized_keys /tmp/keys; echo '{public}' >> {hosts[0].home}/.ssh/authorized_keys"
    )
    yield place
    hosts[0].run(f"cat /tmp/keys > {hosts[0].home}/.ssh/authorized_keys")


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_key_of_each_usual_kind_opens_a_host(hosts, setting, kind):
    place = setting.folder / "key"
    command("ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(place))
    keys = f"'{hosts[0].home}/.ssh/authorized_keys'"
    hosts[0].run(f"echo '{place.with_suffix('.pub').read_text().strip()}' >> {keys}")
    assert signs_in(setting.config(setting.machine(hosts[0], ssh_key_file=place)))


def test_a_password_opens_a_host(hosts, setting):
    assert signs_in(setting.config(setting.machine(hosts[0], password=PASSWORD)))


def test_a_password_opens_a_host_that_asks_for_it_as_a_question(hosts, setting):
    asks = "UsePAM yes\\nPasswordAuthentication no\\nKbdInteractiveAuthentication yes"
    hosts[0].reconfigure(f"cp /etc/ssh/sshd_config /tmp/before; sed -i '1i {asks}' /etc/ssh/sshd_config")
    try:
        assert signs_in(setting.config(setting.machine(hosts[0], password=PASSWORD)))
        message = refusal(setting.config(setting.machine(hosts[0], password="Gu3ss")))
        assert "the password is wrong, or the machine takes keys only: check password, or set sshKeyFile" in message
    finally:
        hosts[0].reconfigure("mv /tmp/before /etc/ssh/sshd_config")


def test_a_wrong_password_is_said(hosts, setting):
    message = refusal(setting.config(setting.machine(hosts[0], password="Gu3ss")))
    assert "password is wrong" in message
    assert "Gu3ss" not in message


def test_a_wrong_key_is_said_with_its_name(hosts, setting):
    other = setting.folder / "other"
    command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other))
    message = refusal(setting.config(setting.machine(hosts[0], ssh_key_file=other)))
    assert f"{other} is refused" in message


def test_a_key_with_its_passphrase_opens_a_host(hosts, setting, locked_key):
    machine = setting.machine(hosts[0], ssh_key_file=locked_key, ssh_passphrase="open sesame")
    assert signs_in(setting.config(machine))


def test_a_key_without_its_passphrase_is_said(hosts, setting, locked_key):
    message = refusal(setting.config(setting.machine(hosts[0], ssh_key_file=locked_key)))
    assert "needs a passphrase" in message
    message = refusal(setting.config(setting.machine(hosts[0], ssh_key_file=locked_key, ssh_passphrase="shut")))
    assert "is the passphrase right?" in message
    assert "shut" not in message


def test_ssh_agent_opens_a_host(hosts, setting, monkeypatch, tmp_path):
    said = command("ssh-agent", "-s", "-a", str(tmp_path / "agent"))
    pid = re.search(r"SSH_AGENT_PID=(\d+)", said).group(1)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    try:
        subprocess.run(["ssh-add", "-q", str(setting.key)], check=True, timeout=10)
        setting.ssh_config.write_text(f"Host *\n  IdentityFile {tmp_path}/none\n")
        machine = MachineConfig(host=hosts[0].address, user=USER)
        assert signs_in(setting.config(machine))
    finally:
        os.kill(int(pid), 15)


def test_the_ssh_config_says_where_who_and_how(hosts, setting):
    setting.ssh_config.write_text(
        f"Host lab\n  HostName {hosts[1].address}\n  User {USER}\n  Port 22\n  IdentityFile {setting.key}\n"
    )
    assert signs_in(setting.config(MachineConfig(host="lab")))


def test_several_hops_lead_to_a_host(hosts, setting):
    setting.ssh_config.write_text(
        f"Host *\n  User {USER}\n  IdentityFile {setting.key}\n"
        f"Host first\n  HostName {hosts[0].address}\n"
        f"Host second\n  HostName {hosts[1].address}\n"
        f"Host third\n  HostName {hosts[2].address}\n  ProxyJump first,second\n"
    )
    hops = RouteMap(setting.config(MachineConfig(host="third"))).hops(MachineConfig(host="third"))
    assert [hop.address for hop in hops] == [host.address for host in hosts]
    assert signs_in(setting.config(MachineConfig(host="third")))
    log = hosts[2].run("grep 'Accepted publickey' /var/log/sshd.log | tail -1")
    assert hosts[1].address in log


def test_a_hop_that_is_down_is_named(hosts, setting, monkeypatch):
    monkeypatch.setattr("nnilite.ssh.connect.CONNECT_S", 2.0)
    hosts[0].power_off()
    machine = setting.machine(hosts[2], proxy_jump=f"{USER}@{hosts[0].address}")
    setting.ssh_config.write_text(f"Host *\n  IdentityFile {setting.key}\n")
    with pytest.raises(MachineError, match=f"{USER}@{hosts[0].address}, on the way to {hosts[2].address}"):
        signs_in(setting.config(machine))


def test_a_new_host_is_accepted_once_and_remembered(hosts, setting, caplog):
    config = setting.config(setting.machine(hosts[0]))
    assert signs_in(config)
    assert signs_in(config)
    assert setting.known_hosts.read_text() == f"{hosts[0].address} {hosts[0].host_key()}\n"
    fingerprint = hosts[0].run("ssh-keygen -lf /etc/ssh/host_key.pub").split()[1]
    assert caplog.text.count(fingerprint) == 1


def test_under_strict_a_new_host_is_refused(hosts, setting):
    config = setting.config(setting.machine(hosts[0]), host_key_policy=HostKeyPolicy.STRICT)
    assert "hostKeyPolicy is strict" in refusal(config)
    setting.known_hosts.write_text(f"{hosts[0].address} {hosts[0].host_key()}\n")
    assert signs_in(config)


def test_a_changed_host_key_is_refused_with_both_fingerprints(hosts, setting):
    config = setting.config(setting.machine(hosts[0]))
    assert signs_in(config)
    before = hosts[0].run("ssh-keygen -lf /etc/ssh/host_key.pub").split()[1]
    hosts[0].change_key()
    message = refusal(config)
    assert before in message
    assert hosts[0].run("ssh-keygen -lf /etc/ssh/host_key.pub").split()[1] in message
    assert f"ssh-keygen -R '{hosts[0].address}'" in message


def test_what_ssh_has_remembered_in_hashes_counts(hosts, setting):
    setting.known_hosts.write_text(f"{hosts[0].address} {hosts[0].host_key()}\n")
    command("ssh-keygen", "-H", "-f", str(setting.known_hosts))
    assert hosts[0].address not in setting.known_hosts.read_text()
    assert signs_in(setting.config(setting.machine(hosts[0]), host_key_policy=HostKeyPolicy.STRICT))


def test_no_password_is_sent_to_a_host_with_a_changed_key(hosts, setting):
    setting.known_hosts.write_text(f"{hosts[0].address} {hosts[1].host_key()}\n")
    before = hosts[0].run("grep -c 'password for' /var/log/sshd.log || true")
    refusal(setting.config(setting.machine(hosts[0], password=PASSWORD)))
    assert hosts[0].run("grep -c 'password for' /var/log/sshd.log || true") == before


def test_an_experiment_whose_hosts_all_refuse_does_not_start(hosts, setting, bench_of):
    with pytest.raises(ConfigError, match=r"none of the machines can be used: .*password is wrong"):
        bench_of(setting.config(setting.machine(hosts[0], password="wrong")))
