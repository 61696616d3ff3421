"""Finds the program that has a socket, and recognizes those that forward what others send.

A program that forwards a port runs as one user, and any user who reaches its other end is connected through it: `ssh -L
8080` typed on a login node opens that port to all users of the node, and the server's kernel sees an sshd of the user
who logged in. So such a program's connection does not identify the sender, and neither does one whose program is not
found.

Linux lists the open files of a process in /proc/PID/fd, for its own user and for root. The processes of sshd are closed
to their user, since they have been root's: they are not found, which comes to the same.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PROCESSES = Path("/proc")

_SSH = ("sshd", "sshd-session", "sshd-auth", "ssh", "autossh", "dropbear", "dbclient", "plink", "putty", "tsh", "tmate")
_PIPES = ("socat", "nc", "ncat", "netcat", "nc.openbsd", "nc.traditional", "stunnel", "stunnel4", "redir", "rinetd")
_CONTAINERS = ("docker-proxy", "rootlessport", "rootlesskit", "slirp4netns", "pasta", "passt", "gvproxy")
# The program that runs a virtual machine connects to this machine for the programs in it.
_MACHINES = (
    *(f"qemu-system-{kind}" for kind in ("x86_64", "i386", "aarch64", "arm", "ppc64", "riscv64", "s390x")),
    *("qemu-kvm", "kvm", "VirtualBoxVM", "VBoxHeadless", "VBoxNetNAT", "vmware-vmx", "vmnet-natd", "vpnkit", "limactl"),
)
_CLUSTERS = ("kubectl", "oc", "k9s", "telepresence")
_PROXIES = ("nginx", "haproxy", "caddy", "traefik", "envoy", "apache2", "httpd", "lighttpd", "squid", "privoxy")
_SOCKS = ("microsocks", "danted", "sockd", "3proxy", "tinyproxy", "ss-local", "ss-server", "sing-box", "xray", "tor")
_TUNNELS = ("cloudflared", "ngrok", "tailscaled", "frpc", "chisel", "gost", "bore", "code-tunnel", "inetd", "xinetd")
_MORE_TUNNELS = ("devtunnel", "rathole", "zrok", "wstunnel", "wireproxy", "sslh", "systemd-socket-proxyd")
FORWARDERS = frozenset(
    (*_SSH, *_PIPES, *_CONTAINERS, *_MACHINES, *_CLUSTERS, *_PROXIES, *_SOCKS, *_TUNNELS, *_MORE_TUNNELS)
)
"""Names of programs whose work is to forward ports."""

_COMM_MAX = 15  # letters of a program's name that the kernel keeps
_SHORTENED = frozenset(name[:_COMM_MAX] for name in FORWARDERS)
_REMEMBERED = 8


class Programs:
    """Finds programs by their sockets. Its methods block, and may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A browser opens many connections: its process is examined first.
        self._recent: list[int] = []

    def find_owners(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Return the processes that have these sockets, by inode; without those for which none can be seen.

        `wanted`: the user of each. The open files of a process are read once for all of them: looks for one after
        the other at a program with a thousand connections would take minutes.
        """
        owners: dict[str, int] = {}
        missing = {f"socket:[{inode}]": inode for inode in wanted}
        with self._lock:
            recent = list(self._recent)
        for process, user in _processes({*wanted.values()}, recent):
            found = [inode for inode in map(missing.get, _open_files(process)) if inode and wanted[inode] == user]
            owners |= dict.fromkeys(found, process)
            missing = {link: inode for link, inode in missing.items() if inode not in owners} if found else missing
            if not missing:
                break
        with self._lock:
            self._recent = list(dict.fromkeys([*owners.values(), *self._recent]))[:_REMEMBERED]
        return owners


def forwards(process: int) -> bool:
    """Return whether a process is known to forward what others send, or cannot be distinguished from one."""
    folder = PROCESSES / str(process)
    try:
        name = (folder / "comm").read_text("utf-8", "replace").rstrip("\n")
    except OSError:
        return True
    if name in _SHORTENED:
        return True
    with suppress(OSError):  # another user's process, or one that was root's
        return (folder / "exe").readlink().name.removesuffix(" (deleted)") in FORWARDERS
    return False


def _processes(users: Collection[int], first: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the processes of some users, each with its user: these ones first, and then the latest first."""
    for process in first:
        yield from _with_user(process, users)
    with os.scandir(PROCESSES) as entries:
        found = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for process in sorted(found, reverse=True):
        if process not in first:
            yield from _with_user(process, users)


def _with_user(process: int, users: Collection[int]) -> Iterator[tuple[int, int]]:
    with suppress(OSError):
        user = (PROCESSES / str(process)).stat().st_uid
        if user in users:
            yield process, user


def _open_files(process: int) -> Iterator[str]:
    """Yield what the open files of a process are. Those of one that has gone, or is closed to this user, are none."""
    with suppress(OSError):
        for file in (PROCESSES / str(process) / "fd").iterdir():
            # It may have been closed. A look at the file itself might wait for its disk.
            with suppress(OSError):
                yield str(file.readlink())
