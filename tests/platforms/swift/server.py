"""Swift's four programs and a memcached, on ports of their own, with one account. They keep everything in one folder.

Unlike stand-ins for S3 it checks signatures: a wrong key or secret is refused.
"""

from __future__ import annotations

import getpass
import importlib.util
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from nnilite.testing import eventually
from nnilite.testing.ports import free_ports

KEY, SECRET = "test:tester", "testing"

_KINDS = ("object", "container", "account")
_START_S = 120.0
_COMMON = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
fallocate_reserve = 0
log_name = {kind}
log_udp_host = 127.0.0.1
log_udp_port = 9
"""
_STORAGE = """
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
[{kind}-replicator]
[{kind}-auditor]
[{kind}-updater]
"""
_PROXY = """
[pipeline:main]
pipeline = catch_errors cache listing_formats bulk s3api tempauth slo dlo versioned_writes symlink proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memcached}
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_versioned_writes = true
"""
_PLAIN = ("catch_errors", "listing_formats", "bulk", "slo", "dlo", "symlink")
_SWIFT = """
[swift-hash]
swift_hash_path_suffix = of
swift_hash_path_prefix = tests
[storage-policy:0]
name = only
default = yes
"""
# Swift's own command has to be started nine times for this, each time for 0.4 s of processor time.
_RINGS = """
import sys
from swift.common.ring import RingBuilder
for kind, port in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
    builder = RingBuilder(4, 1, 1)
    at = {"ip": "127.0.0.1", "port": port, "replication_ip": "127.0.0.1", "replication_port": port}
    builder.add_dev({"region": 1, "zone": 1, "device": "d1", "weight": 1.0, "meta": "", **at})
    builder.rebalance()
    builder.get_ring().save(f"{kind}.ring.gz")
"""


def missing() -> str:
    """What is not installed; "" if all is there."""
    if importlib.util.find_spec("swift") is None:
        return "swift is not installed"
    return "" if shutil.which("memcached") else "memcached is not installed"


class SwiftServer:
    """One S3 server from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = dict(zip(("proxy", "memcached", *_KINDS), free_ports(2 + len(_KINDS)), strict=True))
        self._programs: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports['proxy']}"

    def start(self) -> None:
        """Returns when it answers."""
        self._configure()
        user = ["-u", getpass.getuser()]
        self._run("memcached", "-l", "127.0.0.1", "-p", str(self._ports["memcached"]), "-m", "16", *user)
        for kind in ("proxy", *_KINDS):
            program = Path(sys.executable).parent / f"swift-{kind}-server"
            self._run(str(program), str(self._folder / f"{kind}.conf"))
        eventually(lambda: all(map(_listens, self._ports.values())), _START_S)

    def stop(self) -> None:
        for program in self._programs:
            program.terminate()
        for program in self._programs:
            try:
                program.wait(10)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()

    def _run(self, *words: str) -> None:
        with (self._folder / "log").open("ab") as log:
            self._programs.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _configure(self) -> None:
        (self._folder / "devices" / "d1").mkdir(parents=True)
        (self._folder / "swift.conf").write_text(_SWIFT)
        plain = "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in _PLAIN)
        self._write("proxy", _PROXY.format(memcached=self._ports["memcached"]) + plain)
        for kind in _KINDS:
            self._write(kind, _STORAGE.format(kind=kind))
        self._make_rings()

    def _write(self, kind: str, more: str) -> None:
        common = _COMMON.format(kind=kind, port=self._ports[kind], folder=self._folder, user=getpass.getuser())
        (self._folder / f"{kind}.conf").write_text(common + more)

    def _make_rings(self) -> None:
        """Write where the one copy of everything is."""
        ports = [word for kind in _KINDS for word in (kind, str(self._ports[kind]))]
        command = [sys.executable, "-c", _RINGS, *ports]
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True, timeout=_START_S)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
