"""A Slurm of several hosts: a head with slurmctld and sshd, and three nodes that can lose power.

The head is the login node: over SSH all is done there as the user `tester`. All hosts share one folder, /shared, as
clusters share a file system; the home of `tester` is there. One munged on this machine speaks for all, by a socket in
that folder.
"""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

from nnilite.testing import eventually
from platforms.hosts.hosts import USER, Host, Network
from platforms.hosts.hosts import missing as missing_hosts
from platforms.slurm import daemons
from platforms.slurm.daemons import NO_ACCOUNTING, SlurmDaemons, make_devices

CPUS = 2
MEMORY_MB = 8000
GPUS = 2
NODES = 3
PLACE = Path("/shared")
_DEAD_S = 60.0


def missing() -> str:
    """Why no lab can be made here; "" if it can."""
    return missing_hosts() or daemons.missing()


class SlurmLab(SlurmDaemons):
    """A head and three nodes."""

    def __init__(self, network: Network) -> None:
        super().__init__(network.folder / "shared", PLACE, ports=(6817, 6818), patience_s=6)
        self.network = network
        self.hosts: list[Host] = []

    @property
    def head(self) -> Host:
        return self.hosts[0]

    @property
    def nodes(self) -> list[Host]:
        return self.hosts[1:]

    # ------------------------------------------------------------ starting

    def open(self) -> None:
        self.folder.mkdir(mode=0o755)
        for folder in ("home", "state"):
            (self.folder / folder).mkdir()
        for number in range(1 + NODES):
            self.hosts.append(self._host(number))
        self.configure(NO_ACCOUNTING)
        self.start_munged()
        self.start_slurmctld()
        for node in self.nodes:
            self.start_slurmd(node)
        self.await_nodes()

    def _host(self, number: int) -> Host:
        name = "head" if number == 0 else f"n{number}"
        host = Host(self.network, name, f"{self.network.subnet}.{100 + number}", f"{PLACE}/home/{USER}", "")
        self.network.hosts.append(host)
        host.plug_in()
        (host.folder / "shared").symlink_to(self.folder)
        host.boot()
        host.run(f"mkdir -p /etc/slurm; for it in slurm cgroup gres; do ln -sf {PLACE}/$it.conf /etc/slurm/; done")
        return host

    def configure(self, accounting: str) -> None:
        """Write the configuration. Daemons have to be started anew, or told."""
        self.accounting = accounting
        nodes = "\n".join(
            f"NodeName={node.name} NodeAddr={node.address} CPUs={CPUS} RealMemory={MEMORY_MB} Gres=gpu:fake:{GPUS} "
            f"Feature=lab State=UNKNOWN"
            for node in self.nodes
        )
        names = ",".join(node.name for node in self.nodes)
        make_devices(self.folder, GPUS)
        gres = f"NodeName={names} Name=gpu Type=fake File={PLACE}/gpu[0-{GPUS - 1}]\n"
        self.write_conf(self.head.name, self.head.address, "/var/spool/slurmd", nodes, gres)

    def start_slurmctld(self) -> None:
        self._daemon(self.head, "slurmctld -D", "slurmctld")
        eventually(lambda: "is UP" in self.ask("scontrol ping"), daemons.START_S)

    def kill_slurmctld(self) -> None:
        """It is gone at once, and Slurm does not answer any more."""
        self.head.run("pkill -9 -x slurmctld; while pgrep -x slurmctld >/dev/null; do sleep 0.02; done")

    def start_slurmd(self, node: Host) -> None:
        self._daemon(node, f"slurmd -D -N {node.name}", "slurmd")

    def _daemon(self, host: Host, command: str, name: str) -> None:
        said = f"{PLACE}/{name}-{host.name}.out"
        host.run(f"setsid {command} </dev/null >>{said} 2>&1 &")

    def await_nodes(self, number: int = NODES) -> None:
        """Until so many nodes are ready."""
        ready = "sinfo -h -N -p debug -t idle,mix,alloc -o %N | sort -u | wc -l"
        eventually(lambda: int(self.ask(ready) or 0) >= number, _DEAD_S)

    # ------------------------------------------------------------ asking

    def ask(self, script: str, user: str = "root") -> str:
        """What a script prints on the head; "" if it fails."""
        with contextlib.suppress(RuntimeError):
            return self.head.run(script, user=user).strip()
        return ""

    def await_answer(self, script: str) -> str:
        """What a script prints on the head, once it prints something."""
        return eventually(lambda: self.ask(script), _DEAD_S)

    def node_of(self, job: str) -> Host:
        """The node that a job runs on."""
        name = eventually(lambda: self.ask(f"squeue -h -j {shlex.quote(job)} -o %N"))
        return next(node for node in self.nodes if node.name == name)

    def repair(self) -> None:
        """All hosts have power, all daemons run, no job is left and no file of `tester`."""
        if not self.ask("pgrep -x slurmctld"):
            self.start_slurmctld()
        for node in self.nodes:
            if not node.has_power:
                node.power_on()
            if not node.run("pgrep -x slurmd || true").strip():
                self.start_slurmd(node)
        self.ask(f"scancel -u {USER}; scancel -u root")
        eventually(lambda: not self.ask("squeue -h"), _DEAD_S)
        self.await_nodes()
        self.ask(f"rm -rf {PLACE}/home/{USER}/nnilite")
