"""Which key a machine must have: OpenSSH's known_hosts files, and what to do with a machine that is in none.

Names may be hashed (`|1|salt|hash`), patterns (`*.lab`, `!bad.lab`) or `[name]:port`; `@revoked` keys are refused.
A key that has changed is always refused, but under `ignore`.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from nnilite.ssh.errors import MachineError

log = logging.getLogger(__name__)

_appending = threading.Lock()


class HostKeyPolicy(Enum):
    """What is done about a machine's key."""

    STRICT = "strict"  # it must be known
    ACCEPT_NEW = "accept-new"  # a machine seen for the first time is believed, and remembered
    IGNORE = "ignore"  # any key will do: only for networks where no other machine can answer


@dataclass(frozen=True)
class HostKey:
    """A public key: its kind, such as ssh-ed25519, and its bytes."""

    kind: str
    data: bytes

    @property
    def fingerprint(self) -> str:
        """The fingerprint as `ssh` shows it."""
        digest = base64.b64encode(hashlib.sha256(self.data).digest()).decode("ascii").rstrip("=")
        return f"{self.kind} SHA256:{digest}"


@dataclass(frozen=True)
class _KnownHost:
    names: tuple[str, ...]
    key: HostKey
    revoked: bool
    place: str

    def covers(self, name: str) -> bool:
        found = False
        for pattern in self.names:
            negated, plain = pattern.startswith("!"), pattern.removeprefix("!")
            if _matches(plain, name):
                if negated:
                    return False
                found = True
        return found


class KnownHosts:
    """The keys in some files. The first file is the one that is written to."""

    def __init__(self, files: Iterable[Path], policy: HostKeyPolicy) -> None:
        self._files = tuple(files)
        self._policy = policy

    def kinds(self, name: str) -> list[str]:
        """Return the known kinds of a machine's keys. A connection should ask it for one of these."""
        return list(dict.fromkeys(line.key.kind for line in self._lines() if line.covers(name) and not line.revoked))

    def check(self, name: str, key: HostKey) -> None:
        """Check the key of a machine. Raises: MachineError if the machine `name` must not have this key."""
        if self._policy is HostKeyPolicy.IGNORE:
            return
        lines = [line for line in self._lines() if line.covers(name)]
        for line in lines:
            if line.revoked and line.key == key:
                raise MachineError(f"its host key {key.fingerprint} is revoked in {line.place}", lasting=True)
        known = [line for line in lines if not line.revoked]
        if any(line.key == key for line in known):
            return
        if known:
            raise MachineError(self._changed(name, key, known), lasting=True)
        if self._policy is HostKeyPolicy.STRICT:
            raise MachineError(
                f"its host key {key.fingerprint} is not in {self._files[0]}, and hostKeyPolicy is strict. "
                f"If that is its key, connect once by `ssh` and accept it",
                lasting=True,
            )
        self._remember(name, key)

    def _changed(self, name: str, key: HostKey, known: list[_KnownHost]) -> str:
        expected = known[0]
        return (
            f"its host key is {key.fingerprint}, but {expected.place} says {expected.key.fingerprint}: the machine was "
            f"reinstalled, or another machine answers in its place. If you know that it was reinstalled, run "
            f"`ssh-keygen -R '{name}'`, and nnilite tries again"
        )

    def _remember(self, name: str, key: HostKey) -> None:
        log.warning("%s is new; its host key %s is trusted from now on", name, key.fingerprint)
        place = self._files[0]
        text = f"{name} {key.kind} {base64.b64encode(key.data).decode('ascii')}\n".encode()
        try:
            with _appending:
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                with os.fdopen(file, "r+b") as stream:
                    end = stream.seek(0, os.SEEK_END)
                    stream.seek(max(0, end - 1))
                    missing = b"\n" if end and stream.read(1) != b"\n" else b""
                    stream.write(missing + text)
        except OSError as error:
            log.warning("%s cannot be written, so the key of %s is not remembered: %s", place, name, error)

    def _lines(self) -> Iterator[_KnownHost]:
        for place in self._files:
            try:
                text = place.read_text("utf-8", "replace")
            except OSError:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                found = _parse(line, f"{place}:{number}")
                if found is not None:
                    yield found


def host_name(address: str, port: int) -> str:
    """Return the name of a machine in the files."""
    return address.lower() if port == 22 else f"[{address.lower()}]:{port}"


def _parse(line: str, place: str) -> _KnownHost | None:
    parts = line.split()
    marker = parts.pop(0) if parts and parts[0].startswith("@") else ""
    if len(parts) < 3 or parts[0].startswith("#") or marker not in ("", "@revoked"):
        return None  # `@cert-authority` too: certificates of hosts are not used
    try:
        data = base64.b64decode(parts[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return _KnownHost(tuple(parts[0].split(",")), HostKey(parts[1], data), bool(marker), place)


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("|1|"):
        return _matches_hash(pattern, name)
    if not any(letter in pattern for letter in "*?"):
        return pattern.lower() == name
    # a bracket stands for itself here: `[name]:port`
    return fnmatch.fnmatchcase(name, pattern.lower().replace("[", "[[]"))


def _matches_hash(pattern: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in pattern[3:].split("|"))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)
