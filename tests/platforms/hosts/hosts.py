"""Separate hosts on this machine: each with its own network, root, process table, users and sshd.

    Network       a bridge that the hosts are joined by; this machine is on it too, as their gateway
    Host          boots in well under a second; can lose power, its link, its sshd or its disk space

A host's root is a copy-on-write layer over this machine's, so every program is there, and what a host writes is seen
by nobody else. All is made by Linux namespaces and needs root; `missing` says what else. Nothing but the addresses of
these hosts is ever talked to, and `close` leaves nothing behind. A run that is killed cannot close its hosts; the next
one removes them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from nnilite.testing import eventually
from waiting import pause

HERE = Path(__file__).parent
PROGRAMS = ("ip", "unshare", "nsenter", "ssh-keygen", "/usr/sbin/sshd", "chroot", "useradd")
PASSWORD = "s3cret"
USER = "tester"
FOLDER = "/var/tmp"
_PREFIX = "nnilite-hosts-"
_OWNER = "owner"
_BOOT_LIMIT_S = 20.0
_NUMBERS = itertools.count()
_APART = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--propagation", "private"]


def missing() -> str:
    """Why no hosts can be made here; "" if they can."""
    if os.geteuid() != 0:
        return "separate hosts are made of namespaces, which only root can make"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def command(*arguments: str) -> str:
    """Run a program; what it printed. Raises: RuntimeError with its complaint."""
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """A bridge with hosts. `key`: a private key whose public half every host lets in."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=FOLDER))
        # Several runs may go on side by side, and one may have several networks. A name has 15 letters at most.
        self._mark = f"{os.getpid() % 0xFFFF:x}{next(_NUMBERS):x}"
        self.bridge = f"nni{self._mark}"
        self.subnet = _free_subnet()
        self.gateway = f"{self.subnet}.1"
        (self.folder / _OWNER).write_text(f"{os.getpid()} {self._mark}")
        self.key = self.folder / "key"
        self.hosts: list[Host] = []

    def open(self) -> None:
        remove_abandoned()
        command("ip", "link", "add", self.bridge, "type", "bridge")
        command("ip", "addr", "add", f"{self.gateway}/24", "dev", self.bridge)
        command("ip", "link", "set", self.bridge, "up")
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))

    def host(self, home: str = "/home/tester", sshd_options: str = "") -> Host:
        """A new host, booted."""
        number = len(self.hosts) + 1
        host = Host(self, f"h{number}", f"{self.subnet}.{10 + number}", home, sshd_options)
        self.hosts.append(host)
        host.plug_in()
        host.boot()
        return host

    def interface(self, host: Host) -> str:
        return f"v{self._mark}{host.name}"

    def namespace(self, host: Host) -> str:
        return f"nni{self._mark}{host.name}"

    def close(self) -> None:
        for host in self.hosts:
            host.remove()
        with contextlib.suppress(RuntimeError):
            command("ip", "link", "del", self.bridge)
        shutil.rmtree(self.folder, ignore_errors=True)


def remove_abandoned() -> None:
    """End all hosts of runs that were killed, and remove what is left of them."""
    for owner in Path(FOLDER).glob(f"{_PREFIX}*/{_OWNER}"):
        with contextlib.suppress(FileNotFoundError, ValueError):  # another run removes it, or is just writing it
            process, mark = owner.read_text().split()
            if not Path("/proc", process).exists():
                _remove(mark)
                shutil.rmtree(owner.parent, ignore_errors=True)


def _remove(mark: str) -> None:
    names = [line.split()[0] for line in command("ip", "netns", "list").splitlines()]
    for name in names:
        if name.startswith(f"nni{mark}h"):
            with contextlib.suppress(RuntimeError):  # another run removes the same
                for process in command("ip", "netns", "pids", name).split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
                command("ip", "netns", "del", name)
    with contextlib.suppress(RuntimeError):
        command("ip", "link", "del", f"nni{mark}")


class Host:
    """One host. Whatever a test does to it, `repair` makes it well again."""

    def __init__(self, network: Network, name: str, address: str, home: str, sshd_options: str) -> None:
        self.name = name
        self.address = address
        self.home = home
        self.folder = network.folder / name
        self._network = network
        self._sshd_options = sshd_options
        self._process: subprocess.Popen[bytes] | None = None
        self._is_throttled = False

    def plug_in(self) -> None:
        inside, outside = self._network.namespace(self), self._network.interface(self)
        command("ip", "netns", "add", inside)
        command("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", inside)
        command("ip", "link", "set", outside, "master", self._network.bridge, "up")
        command("ip", "-n", inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            command("ip", "-n", inside, "link", "set", device, "up")
        for part in ("upper", "work", "root"):
            (self.folder / part).mkdir(parents=True)
        (self.folder / "authorized_keys").write_bytes(self._network.key.with_suffix(".pub").read_bytes())
        shutil.copy(HERE / "inside.sh", self.folder)
        facts = {"NAME": self.name, "ADDRESS": self.address, "GATEWAY": self._network.gateway}
        facts |= {"HOME_FOLDER": self.home, "SSHD_OPTIONS": self._sshd_options, "PYTHON": sys.prefix}
        (self.folder / "facts").write_text("".join(f"{key}='{value}'\n" for key, value in facts.items()))

    def boot(self) -> None:
        """Power on, and wait for sshd."""
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        with (self.folder / "console.log").open("ab") as console:
            self._process = subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    self._network.namespace(self),
                    *_APART,
                    str(HERE / "init.sh"),
                    str(self.folder),
                ],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        self.await_sshd()

    def await_sshd(self) -> None:
        try:
            eventually(self._has_sshd, _BOOT_LIMIT_S)
        except TimeoutError:
            log = (self.folder / "console.log").read_text()
            raise TimeoutError(f"{self.name} has no sshd\n{log}") from None

    def _has_sshd(self) -> bool:
        try:
            with socket.create_connection((self.address, 22), 1) as probe:
                probe.settimeout(1)
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    @property
    def init(self) -> int:
        """The host's first process, as this machine numbers it. Raises: RuntimeError if the power is off."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is off")
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0])

    def run(self, script: str, user: str = "root") -> str:
        """Run a shell script in the host; what it printed."""
        enter = ["nsenter", "-t", str(self.init), "-m", "-p", "-n", "-u", "-i", "--root", "--wd=/"]
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return command(*enter, "env", "-i", path, "su", user, "-s", "/bin/sh", "-c", f"cd /; {script}")

    def share(self, folder: Path, place: str) -> None:
        """Show a folder of this machine in the host, as long as its power is on."""
        self.run(f"mkdir -p {shlex.quote(place)}")
        target = f"{self.folder}/root{place}"
        command("nsenter", "-t", str(self.init), "-m", "--", "mount", "--bind", str(folder), target)

    def preload(self, library: str) -> None:
        """Put a library under all programs that are started from now on, until `repair`."""
        self.run(f"echo {shlex.quote(library)} > /etc/ld.so.preload")

    def sessions(self) -> list[int]:
        """The process ids, as this machine numbers them, of the sshd processes that serve connections."""
        listener = int(self.run("cat /run/sshd.pid").strip())
        inside = [int(pid) for pid in self.run(f"pgrep -P {listener} || true").split()]
        return [_outer(pid, self.init) for pid in inside]

    def kill_sessions(self) -> None:
        """Break all connections by killing what serves them. New ones can be made."""
        # From OpenSSH 9.8 on they are called sshd-session.
        found = "pgrep -x 'sshd|sshd-session'"
        self.run(f'for pid in $({found}); do [ "$pid" = "$(cat /run/sshd.pid)" ] || kill -9 "$pid" || true; done')

    def cut(self) -> None:
        """Unplug the cable: nothing is refused, everything vanishes."""
        command("ip", "link", "set", self._network.interface(self), "down")

    def cut_for(self, seconds: float) -> None:
        """Unplug the cable for so long."""
        self.cut()
        pause(seconds, "the cable is out")
        self.mend()

    def mend(self) -> None:
        command("ip", "link", "set", self._network.interface(self), "up")

    def throttle(self, megabits: int) -> None:
        """Let so much through in a second, in each direction; 0: as much as there is."""
        device = self._network.interface(self)
        inside = ["-n", self._network.namespace(self)]
        self._is_throttled = megabits > 0
        rate = ["root", "tbf", "rate", f"{megabits}mbit", "burst", "64kb", "latency", "50ms"]
        for where, name in (([], device), (inside, "eth0")):
            with contextlib.suppress(RuntimeError):
                command("tc", *where, "qdisc", "del", "dev", name, "root")
            if megabits:
                command("tc", *where, "qdisc", "add", "dev", name, *rate)

    @property
    def has_power(self) -> bool:
        return self._process is not None

    def power_off(self) -> None:
        """All processes end at once, and nothing is said to anybody."""
        self.cut()
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(signal.SIGKILL)
            process.wait(60)

    def power_on(self) -> None:
        self.mend()
        self.boot()

    def repair(self) -> None:
        """Link up, power on, no files and processes of earlier tests."""
        if self._process is None:
            self.power_on()
        self.mend()
        if self._is_throttled:
            self.throttle(0)
        self.await_sshd()
        quoted = f"'{self.home}'"
        kept = "! -name .ssh ! -name '.bash*' ! -name .profile"
        # One entry into the host for all of it: each starts five programs.
        self.run(
            "rm -f /etc/ld.so.preload; "
            f"cp /etc/skel/.bashrc {quoted}/.bashrc; umount -l {quoted}/nnilite 2>/dev/null; "
            # what is being killed may still write
            f"for turn in $(seq 50); do pkill -9 -u {USER} || break; sleep 0.02; done; "
            f"find {quoted} -mindepth 1 -maxdepth 1 {kept} -exec rm -rf {{}} +"
        )

    def host_key(self) -> str:
        """The public half of the host's key: kind and base64."""
        return " ".join(self.run("cat /etc/ssh/host_key.pub").split()[:2])

    def change_key(self) -> None:
        self.reconfigure("rm /etc/ssh/host_key*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/host_key")

    def reconfigure(self, script: str) -> None:
        """Run a script that changes sshd's files, and start sshd anew."""
        before = self.run(f"{script}; cat /run/sshd.pid")
        self.run(f"kill {before.split()[-1]}")
        eventually(lambda: self.run("cat /run/sshd.pid 2>/dev/null || true") not in ("", before), _BOOT_LIMIT_S)
        self.await_sshd()

    def remove(self) -> None:
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            self.power_off()
        for arguments in (
            ("link", "del", self._network.interface(self)),
            ("netns", "del", self._network.namespace(self)),
        ):
            with contextlib.suppress(RuntimeError):
                command("ip", *arguments)


def _outer(pid: int, init: int) -> int:
    """This machine's number of a process of a host, given the host's own number of it."""
    namespace = (Path("/proc") / str(init) / "ns/pid").readlink()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == namespace:
                status = dict(line.split(":\t", 1) for line in (entry / "status").read_text().splitlines())
                if int(status["NSpid"].split()[-1]) == pid:
                    return int(entry.name)
    raise RuntimeError(f"there is no process {pid} in the host")


def _free_subnet() -> str:
    """Three numbers of a private network that this machine is not on; processes that ask at once get different ones."""
    taken = command("ip", "-4", "-o", "addr") + command("ip", "-4", "route")
    subnets = (f"10.99.{40 + (os.getpid() + n) % 210}" for n in range(210))
    return next(subnet for subnet in subnets if f"{subnet}." not in taken)
