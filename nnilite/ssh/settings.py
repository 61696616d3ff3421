"""Fields for the way to a machine, to be inherited by a `Config`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from nnilite.errors import ConfigError, Place
from nnilite.ssh.known_hosts import HostKeyPolicy
from nnilite.units import AnyPath, KeyFile, Port, Secret

_NO_HOST = re.compile(r"[\s*?/,;'\"]")  # what neither a name nor a Host of ~/.ssh/config can have
_ADDRESS = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>[^:@\s]+)(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True)
class SshMachine:
    """One machine. What is not set here is looked up in ~/.ssh/config, as `ssh` does."""

    host: Annotated[str, "its name, its address, or a Host of ~/.ssh/config"]
    port: Annotated[Port | None, "of its sshd; default: from ~/.ssh/config, or else 22"] = None
    user: Annotated[str | None, "to log in as; default: from ~/.ssh/config, or else your name here"] = None
    password: Annotated[Secret | None, 'if set, no key is tried; better "${env:SSH_PASSWORD}" than plain text'] = None
    ssh_key_file: Annotated[
        KeyFile | None, "the only key to try; if not set, ssh-agent and the usual keys are tried"
    ] = None
    ssh_passphrase: Annotated[Secret | None, "passphrase of the key file"] = None
    proxy_jump: Annotated[
        str | None, "machines to go through, as in ~/.ssh/config: [user@]host[:port], with commas"
    ] = None

    def __post_init__(self) -> None:
        for name in ("host", "user", "proxy_jump"):
            check_word(name, getattr(self, name))
        if _NO_HOST.search(self.host):
            found = re.match(r"\w+://([^/:\s]+)", self.host)
            cure = f"write {found[1]}" if found else "write its name or address, and list several machines one by one"
            raise ConfigError(f"{self.host!r} is neither a name nor an address; {cure}", Place(field="host"))
        parts = _ADDRESS.fullmatch(self.host)
        if parts is not None and (parts["user"] or parts["port"]):
            given = {"user": parts["user"], "host": parts["host"], "port": parts["port"]}
            cure = ", ".join(f"{name}: {value}" for name, value in given.items() if value)
            raise ConfigError(f"{self.host!r} is an address of several parts; write {cure}", Place(field="host"))

    @property
    def key(self) -> str:
        """Names the machine in handles, the same after a restart of the manager."""
        user = f"{self.user}@" if self.user else ""
        return f"{user}{self.host}:{self.port or ''}"

    @property
    def ssh_command(self) -> list[str]:
        """The `ssh` command for this machine."""
        options = {"-p": self.port, "-i": self.ssh_key_file, "-J": self.proxy_jump}
        given = [word for option, value in options.items() if value for word in (option, str(value))]
        return ["ssh", *given, f"{self.user}@{self.host}" if self.user else self.host]

    @property
    def title(self) -> str:
        """Names the machine to people."""
        return self.host if self.port is None else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class SshSettings:
    """What counts for all machines that are reached."""

    host_key_policy: Annotated[
        HostKeyPolicy, "strict: the key must be in known_hosts; accept-new: new machines are accepted; ignore"
    ] = HostKeyPolicy.ACCEPT_NEW
    known_hosts_file: Annotated[AnyPath | None, "instead of ~/.ssh/known_hosts"] = None
    ssh_config_file: Annotated[AnyPath | None, "instead of ~/.ssh/config"] = None

    @property
    def ssh_folder(self) -> Path:
        """Where this user's own SSH files are."""
        return Path("~/.ssh").expanduser()


def check_word(name: str, value: str | None) -> None:
    """Check that a value can be a word of a command. Raises: ConfigError at the field."""
    if value is not None and (not value or value.startswith("-") or any(c in value for c in "\0\n\r")):
        raise ConfigError(f"{value!r} cannot be used", Place(field=name.replace("_p", "P")))
