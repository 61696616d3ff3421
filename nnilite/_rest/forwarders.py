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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROCESSES = Path("/proc")

_OPENSSH = ("sshd", "sshd-session", "sshd-auth", "ssh", "autossh", "dropbear", "dbclient")
_PIPES = ("socat", "nc", "ncat", "netcat", "nc.openbsd", "nc.traditional", "stunnel", "stunnel4", "redir", "rinetd")
_CONTAINERS = ("docker-proxy", "rootlessport", "rootlesskit", "slirp4netns", "pasta", "passt", "gvproxy")
_CLUSTERS = ("kubectl", "oc", "k9s", "telepresence")
_PROXIES = ("nginx", "haproxy", "caddy", "traefik", "envoy", "apache2", "httpd", "lighttpd", "squid", "privoxy")
_TUNNELS = ("cloudflared", "ngrok", "tailscaled", "frpc", "chisel", "gost", "bore", "code-tunnel", "inetd", "xinetd")
FORWARDERS = frozenset((*_OPENSSH, *_PIPES, *_CONTAINERS, *_CLUSTERS, *_PROXIES, *_TUNNELS, "systemd-socket-proxyd"))
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

    def owner(self, inode: str, user: int) -> int | None:
        """Return the process of this user that has the socket; None if no such process can be seen."""
        wanted = f"socket:[{inode}]"
        with self._lock:
            recent = list(self._recent)
        for process in (*recent, *_processes(user)):
            if _has(process, wanted):
                with self._lock:
                    self._recent = [process, *(one for one in self._recent if one != process)][:_REMEMBERED]
                return process
        return None


def forwards(process: int) -> bool:
    """Return whether a process is known to forward what others send, or cannot be distinguished from one."""
    folder = PROCESSES / str(process)
    try:
        name = (folder / "comm").read_text("utf-8", "replace").rstrip("\n")
    except OSError:
        return True
    if name in _SHORTENED:
        return True
    with suppress(OSError):  # of another user, or a process that has been root's
        return (folder / "exe").readlink().name.removesuffix(" (deleted)") in FORWARDERS
    return False


def _processes(user: int) -> Iterator[int]:
    """Yield the processes of a user, the latest first."""
    with os.scandir(PROCESSES) as entries:
        found = {int(entry.name): entry for entry in entries if entry.name.isdigit()}
    for process in sorted(found, reverse=True):
        with suppress(OSError):
            if found[process].stat().st_uid == user:
                yield process


def _has(process: int, wanted: str) -> bool:
    """Return whether a process has this file open. Return False if it cannot be seen."""
    try:
        with os.scandir(PROCESSES / str(process) / "fd") as entries:
            return any(_target(entry) == wanted for entry in entries)
    except OSError:  # it has gone, or is closed to this user
        return False


def _target(file: os.DirEntry[str]) -> str:
    """Return what an open file is; "" if it has been closed.

    A look at the file itself might wait for its disk.
    """
    try:
        return str(Path(file.path).readlink())
    except OSError:
        return ""
