"""Anything may happen, to hosts too: an experiment whose manager is here and whose trials run on two hosts, by SSH."""

from __future__ import annotations

import errno
import random
import shlex
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.chaos import TRIAL, Chaos, Victim, books, noticed
from e2e.chaos_setting import FAULTS, LIMITS, SEED, play_and_check
from platforms.disk.disk import WRITE, Disk
from platforms.hosts.hosts import USER, Host
from waiting import pause

AGENT = "[s]ys.stdin.buffer.read"
TRIALS = "[t]rial.py"
BOOKS = "/books"
FORK_SERVER = "[k]eeper-[0-9a-f]+.pyz serve$"

pytestmark = [pytest.mark.real]


@dataclass
class HostChaos(Chaos):
    """Also strikes hosts."""

    hosts: dict[str, Host] = field(default_factory=dict)  # by address
    disks: dict[str, Disk] = field(default_factory=dict)
    furnish: Callable[[Host], None] = lambda host: None
    books: Path = Path()

    def faults(self) -> dict[str, Callable[[], bool | None]]:
        found = super().faults()
        del found["trial killed"], found["fork server killed"]  # that is what the hosts have
        found["booking refused, manager killed"] = self._refuse_bookings
        for address, host in self.hosts.items():
            found |= {
                f"{host.name} agent killed": self._on(host, lambda h: self._signal_all(h, AGENT, "KILL")),
                f"{host.name} agent stopped": self._on(host, self._stop_agent),
                f"{host.name} sessions killed": self._on(host, Host.kill_sessions),
                f"{host.name} link cut": self._on(host, self._cut),
                f"{host.name} trials killed": self._on(host, lambda h: self._signal_all(h, TRIALS, "KILL")),
                f"{host.name} fork server killed": self._on(host, self._kill_fork_server_on),
                f"{host.name} restarted": self._on(host, self._restart),
                **self.disk_faults(host.name, self.disks[address], ("worker", "rest")),
            }
        return found

    def _refuse_bookings(self) -> bool | None:
        """The disk cannot note which host gets a job; it is well again, and the manager dies before the next commit."""
        before = noticed(self.disk, ("bookings",))
        self.disk.refuse("bookings", WRITE, errno.ENOSPC, torn=True)

        def heal() -> bool:
            self.disk.heal("bookings")
            has_struck = noticed(self.disk, ("bookings",)) > before
            pause(self.luck.uniform(0.0, 1.5), "the next submission is under way")
            self._kill_manager()
            return has_struck

        return self._pass("booking refused, manager killed", self.luck.uniform(0.5, 3.0), heal)

    def _on(self, host: Host, strike: Callable[[Host], bool | None]) -> Callable[[], bool | None]:
        return lambda: strike(host)

    def _signal_all(self, host: Host, pattern: str, name: str) -> bool | None:
        found = host.run(f"pkill -{name} -u {USER} -f {shlex.quote(pattern)} && echo struck; true")
        return None if found else False

    def _kill_fork_server_on(self, host: Host) -> bool | None:
        """The keepers that it has forked look just like it. It alone is a child of the agent."""
        agents = f"$(pgrep -d, -u {USER} -f {shlex.quote(AGENT)})"
        wanted = f"-u {USER} -P {agents} -f {shlex.quote(FORK_SERVER)}"
        return None if host.run(f"pkill -KILL {wanted} && echo struck; true") else False

    def _stop_agent(self, host: Host) -> bool | None:
        if self._signal_all(host, AGENT, "STOP") is False:
            return False

        def go_on() -> bool:
            self._signal_all(host, AGENT, "CONT")
            return True

        return self._pass(f"{host.name} agent stopped", self.luck.choice((0.5, 4.0)), go_on)

    def _cut(self, host: Host) -> bool | None:
        host.cut()

        def mend() -> bool:
            host.mend()
            return True

        return self._pass(f"{host.name} link cut", self.luck.choice((0.3, 1.0, 4.0)), mend)

    def _restart(self, host: Host) -> bool | None:
        """Power off and on: all keepers there are gone."""
        if any(trouble.name.startswith(host.name) for trouble in self.passing):
            return False
        host.power_off()
        self.gone |= {key for key, lines in books(self.books).items() if lines[0] == f"on {host.name}"}
        host.power_on()
        self.furnish(host)
        return None

    def find_host(self, victim: Victim) -> Host | None:
        return self.hosts[victim.machine.split("@")[1].rstrip(":")] if victim.machine else None

    def signal(self, victim: Victim, number: int) -> bool | None:
        host = self.find_host(victim)
        if host is None:
            return super().signal(victim, number)
        name = signal.Signals(number).name.removeprefix("SIG")
        # After a restart of the host its number may be that of any process: of this very shell, too.
        of_keeper = f"grep -q '[k]eeper-' /proc/{victim.pid}/cmdline"
        return None if host.run(f"{of_keeper} && kill -{name} {victim.pid} && echo struck; true") else False


@pytest.fixture
def chaos(start, hosts, setting, chaos_disk, books_folder, tmp_path):
    """An experiment on two hosts; they and this machine have disks of their own that may be in trouble."""
    used = {host.address: host for host in (hosts[0], hosts[2])}
    disks = {}
    books_folder.chmod(0o777)  # the trials there are of another user
    for address, host in used.items():
        place = tmp_path / f"disk-{host.name}"
        place.mkdir()
        disks[address] = Disk(place, SEED)
        disks[address].watch("code", "", "*sdk*")
        disks[address].watch("worker", "", "*/nnilite/*/trials/*")
        disks[address].watch("rest", "", "*/nnilite/*")

    def furnish(host: Host) -> None:
        host.share(books_folder, BOOKS)
        host.share(tmp_path / f"disk-{host.name}", "/disk")
        host.preload("/disk/faulty_disk.so")

    for host in used.values():
        furnish(host)
    machines = [{"host": address, "user": USER, "sshKeyFile": str(setting.key)} for address in used]
    remote = {"platform": "remote", "machineList": machines, "knownHostsFile": str(setting.known_hosts)}
    running = start(
        TRIAL,
        trialCommand=f"BOOKS={BOOKS} python3 trial.py",
        trainingService={**remote, "sshConfigFile": str(setting.ssh_config)},
        tuner={"name": "TPE"},
        workerSilence="30s",
        **{**LIMITS, "trialConcurrency": 6},
    )
    yield HostChaos(
        running, random.Random(SEED), chaos_disk, 35.0, hosts=used, disks=disks, furnish=furnish, books=books_folder
    )
    for one in disks.values():
        one.heal()
    for host in used.values():
        host.run("rm -f /etc/ld.so.preload")


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_doubled_whatever_happens_to_hosts(
    chaos: HostChaos,
    books_folder: Path,
    record_property: Callable[[str, object], None],
) -> None:
    chaos.long_stop_s = 5.0
    record_property("shown", f"chaos with hosts: {play_and_check(chaos, 15, books_folder, 150)}")


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_nothing_is_lost_or_doubled_whatever_happens_to_hosts_in_a_long_run(
    chaos: HostChaos,
    books_folder: Path,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("shown", f"chaos with hosts: {play_and_check(chaos, FAULTS, books_folder, 400)}")
