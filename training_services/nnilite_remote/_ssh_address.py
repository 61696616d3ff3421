"""The section of this service for an address, where Python programs give one in place of a config."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from nnilite.errors import ConfigError
from nnilite.records import Json


def service_at(address: str) -> Mapping[str, Json]:
    """Return the section for `ssh://[user@]host[:port]`, or for several of these with commas. Raises: ConfigError."""
    machines: list[Json] = []
    for one in address.split(","):
        text = one.strip() if "://" in one else f"ssh://{one.strip()}"
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"{text!r} is not the address of a machine: {error}") from None
        if not parts.hostname:
            raise ConfigError(f"{text!r} names no machine; write ssh://user@host:port")
        if parts.password is not None:
            raise ConfigError("an address must hold no password; use a key, or a config with `password: ${env:NAME}`")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise ConfigError(f"{text!r} has something after the machine; write ssh://user@host:port")
        # A name of ~/.ssh/config may have capital letters, which `hostname` lowers.
        host = parts.netloc.rpartition("@")[2]
        host = host.rpartition(":")[0] if port is not None else host.rstrip(":")
        machine: dict[str, Json] = {"host": host.strip("[]")}
        machine |= {"port": port} if port is not None else {}
        machine |= {"user": unquote(parts.username)} if parts.username else {}
        machines.append(machine)
    return {"platform": "remote", "machineList": machines}
