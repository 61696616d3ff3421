"""The way to a machine: its hops, users and keys, as OpenSSH's configuration file has them.

These keywords of ~/.ssh/config count: Host, Match, HostName, Port, User, IdentityFile, IdentitiesOnly, ProxyJump
(several hops, and hops that have hops), HostKeyAlias, UserKnownHostsFile, IdentityAgent none. What the experiment's
config says goes first.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from paramiko.ssh_exception import SSHException

from nnilite.ssh.errors import MachineError
from nnilite.ssh.known_hosts import host_name
from nnilite.ssh.settings import SshMachine, SshSettings
from nnilite.units.path_rules import expand_home

_MOST_HOPS = 8
# A `Match exec` of the configuration file gives the name to a shell, and the name may be another person's.
_NO_NAME = re.compile(r"[\s'\"`$\\;&<>|(){}]")
_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")


@dataclass(frozen=True)
class Hop:
    """One machine on the way, and how to prove who one is there."""

    address: str
    port: int
    user: str
    key_files: tuple[Path, ...]
    only_these_keys: bool  # a key of ssh-agent counts only if it is one of the files
    use_agent: bool
    password: str | None
    passphrase: str | None
    known_as: str  # its name in known_hosts
    known_hosts: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{self.user}@{self.address}" + (f":{self.port}" if self.port != 22 else "")


class RouteMap:
    """Finds routes. Raises: MachineError if the configuration file cannot be used."""

    def __init__(self, config: SshSettings) -> None:
        self._config = config
        self._place = config.ssh_config_file or config.ssh_folder / "config"
        self._ssh = paramiko.SSHConfig()
        try:
            if self._place.exists() or config.ssh_config_file is not None:
                self._ssh = paramiko.SSHConfig.from_path(str(self._place))
        except (OSError, UnicodeDecodeError, paramiko.ConfigParseError) as error:
            raise MachineError(f"{self._place} cannot be used: {error}", lasting=True) from error

    def hops(self, machine: SshMachine) -> list[Hop]:
        """Return all hops to a machine; the last one is the machine itself. Raises: MachineError."""
        options = self._options(machine.host)
        own = self._make_hop(options, machine.user, machine.port, machine)
        jump = machine.proxy_jump if machine.proxy_jump is not None else options.get("proxyjump")
        return [*self._parse_jumps(jump, machine.host, ()), own]

    def _parse_jumps(self, jump: str | None, target: str, seen: tuple[str, ...]) -> list[Hop]:
        """Return the hops in order, like `ssh`; the first one may itself have hops."""
        if not jump or jump.lower() == "none":
            return []
        hops: list[Hop] = []
        for number, text in enumerate(part.strip() for part in jump.split(",")):
            user, host, port = _split(text, target)
            if host in seen or len(seen) >= _MOST_HOPS:
                raise MachineError(f"ProxyJump goes round in circles at {host}", lasting=True)
            options = self._options(host)
            if number == 0:
                hops += self._parse_jumps(options.get("proxyjump"), host, (*seen, host))
            hops.append(self._make_hop(options, user, port, None))
        return hops

    def _options(self, host: str) -> Mapping[str, Any]:
        if _NO_NAME.search(host):
            raise MachineError(f"{host!r} cannot be the name of a machine", lasting=True)
        try:
            options: Mapping[str, Any] = self._ssh.lookup(host)
            if not 0 < int(options.get("port", 22)) < 65536:
                raise ValueError("the port must be from 1 to 65535")
        except ImportError as error:  # a dependency of paramiko is missing
            raise MachineError(
                f"{self._place} has a `Match exec`; for that, `pip install invoke`", lasting=True
            ) from error
        except (ValueError, SSHException) as error:
            raise MachineError(f"{self._place} has no usable entry for {host}: {error}", lasting=True) from error
        if options.get("proxycommand") and "proxyjump" not in options:
            raise MachineError(f"ProxyCommand (for {host}) is not supported; use ProxyJump", lasting=True)
        return options

    def _make_hop(
        self, options: Mapping[str, Any], user: str | None, port: int | None, machine: SshMachine | None
    ) -> Hop:
        address = str(options["hostname"])
        port = port or int(options.get("port", 22))
        given = machine.ssh_key_file if machine else None
        files = (given,) if given else self._list_key_files(options)
        known = self._config.known_hosts_file
        listed = str(options.get("userknownhostsfile", "")).split()
        usual = tuple(expand_home(name) for name in listed) or (self._config.ssh_folder / "known_hosts",)
        return Hop(
            address=address,
            port=port,
            user=user or options.get("user") or getpass.getuser(),
            key_files=tuple(files),
            only_these_keys=given is not None or str(options.get("identitiesonly", "no")).lower() == "yes",
            use_agent=str(options.get("identityagent", "")).lower() != "none" and "SSH_AUTH_SOCK" in os.environ,
            password=machine.password if machine else None,
            passphrase=machine.ssh_passphrase if machine else None,
            known_as=str(options.get("hostkeyalias") or host_name(address, port)),
            known_hosts=(known,) if known else (*usual, Path("/etc/ssh/ssh_known_hosts")),
        )

    def _list_key_files(self, options: Mapping[str, Any]) -> tuple[Path, ...]:
        listed = options.get("identityfile") or [str(self._config.ssh_folder / name) for name in _USUAL_KEYS]
        return tuple(path for path in (expand_home(name) for name in listed) if path.is_file())


def _split(text: str, target: str) -> tuple[str | None, str, int | None]:
    """Split `[user@]host[:port]`, also as a URL with `ssh://`. Raises: MachineError."""
    user, at, rest = text.removeprefix("ssh://").rpartition("@")
    host, colon, port = rest.rpartition(":")
    bare_address = rest.count(":") > 1 and not rest.startswith("[")  # IPv6 without brackets
    if not colon or bare_address or rest.endswith("]"):
        host, port = rest, ""
    host = host.strip("[]")
    if not host or (port and not port.isdecimal()):
        raise MachineError(f"{text!r} (ProxyJump of {target}) is not of the form [user@]host[:port]", lasting=True)
    return user if at else None, host, int(port) if port else None
