"""The daemons of a real Slurm (Debian's slurm-wlm and munge), in a folder of their own, and its configuration.

SlurmHere     one node, which is this machine: trials share its files and processes with the tests
SlurmLab      a head and three nodes, hosts of this machine: see `lab`
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from nnilite.testing import eventually
from nnilite.testing.ports import free_ports

PROGRAMS = ("sbatch", "squeue", "sacct", "scancel", "slurmctld", "slurmd", "munged", "scontrol", "sinfo")
START_S = 30.0

_CONF = """
ClusterName=lab
SlurmctldHost={head}({head_address})
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
AuthType=auth/munge
AuthInfo=socket={seen}/munge/socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={seen}/state
SlurmdSpoolDir={spool}
SlurmctldPidFile={seen}/slurmctld.pid
SlurmdPidFile={spool}.pid
SlurmctldLogFile={seen}/slurmctld.log
SlurmdLogFile={seen}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,sched_min_interval=10000,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout={patience_s}
MessageTimeout=5
KillWait=3
MinJobAge=300
MaxArraySize=50
GresTypes=gpu
PropagateResourceLimits=NONE
DebugFlags=NO_CONF_HASH
{accounting}
{nodes}
PartitionName=debug Nodes=ALL Default=YES DefMemPerCPU=10 MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=short Nodes=ALL DefMemPerCPU=10 MaxTime=5 State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL DefMemPerCPU=10 MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""
_CGROUP = """CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace=no
ConstrainDevices=no
"""
NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"


def missing() -> str:
    """Why no Slurm can be started here; "" if it can."""
    absent = [program for program in PROGRAMS if shutil.which(program, path=search_path()) is None]
    return f"not installed: {', '.join(absent)} (Debian's slurm-wlm and munge)" if absent else ""


def search_path() -> str:
    """With the folders of daemons."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def make_devices(folder: Path, number: int) -> None:
    """Simulated GPUs: devices that Slurm can hand out and nobody uses. Only root can make devices."""
    for index in range(number):
        place = folder / f"gpu{index}"
        if place.exists():
            continue
        if os.geteuid() == 0:
            os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        else:
            place.touch()


@dataclass
class SlurmDaemons:
    """The folder of one cluster, its munged, and how its programs are called.

    `seen` is the folder as the daemons see it.
    """

    folder: Path
    seen: Path
    ports: tuple[int, int] = field(default_factory=lambda: tuple(free_ports(2)))
    accounting: str = NO_ACCOUNTING
    patience_s: int = 60  # until a silent node counts as dead
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": search_path(), "SLURM_CONF": str(self.conf)}

    def write_conf(self, head: str, address: str, spool: str, nodes: str, gres: str) -> None:
        """Write what all daemons and commands read."""
        facts = {"head": head, "head_address": address, "seen": self.seen, "spool": spool, "nodes": nodes}
        ctld_port, slurmd_port = self.ports
        user = "root" if os.geteuid() == 0 else os.environ.get("USER", "root")
        facts |= {"ctld_port": ctld_port, "slurmd_port": slurmd_port, "user": user, "accounting": self.accounting}
        facts["patience_s"] = self.patience_s
        self.conf.write_text(_CONF.format(**facts))
        (self.folder / "cgroup.conf").write_text(_CGROUP)
        (self.folder / "gres.conf").write_text(gres)

    def start_munged(self) -> None:
        """It speaks for whoever reaches its socket: also for other hosts, where the folder is shared."""
        folder = self.folder / "munge"
        folder.mkdir(mode=0o755)
        key = folder / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        words = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/socket"]
        words += [f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed"]
        self.start("munged", words)
        eventually((folder / "socket").exists, START_S)

    def start(self, name: str, words: list[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as said:
            self.processes[name] = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )

    def stop(self, name: str, how: int = signal.SIGTERM) -> None:
        process = self.processes.pop(name, None)
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def command(self, *words: str, folder: Path | None = None) -> str:
        """What a command of Slurm prints. Raises: CalledProcessError."""
        options = {"capture_output": True, "text": True, "check": True, "timeout": 30}
        done = subprocess.run(words, env=self.environment, cwd=folder, **options)
        return done.stdout.strip()

    def idle(self) -> int:
        """How many nodes are ready."""
        try:
            return len(self.command("sinfo", "-h", "-N", "-p", "debug", "-t", "idle,mix,alloc", "-o", "%N").split())
        except subprocess.CalledProcessError:
            return 0

    def ask(self, script: str) -> str:
        """What a shell script prints that uses the commands of Slurm."""
        return self.command("/bin/sh", "-c", script)

    def await_saved(self) -> None:
        """Until slurmctld has written down what it knows: killed before, it would forget the last seconds."""
        began_s = time.time()
        number = self.ask("cd /tmp && sbatch --parsable --hold --mem=10 --wrap=true")
        eventually(lambda: (self.folder / "state" / "job_state").stat().st_mtime > began_s, START_S)
        self.ask(f"scancel {number}")

    def close(self) -> None:
        for name in reversed(list(self.processes)):
            self.stop(name)


class SlurmHere(SlurmDaemons):
    """One node, which is this machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder)

    def open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "state").mkdir()
        name = socket.gethostname().split(".")[0]
        make_devices(self.folder, 2)
        node = f"NodeName=here NodeHostname={name} NodeAddr=127.0.0.1 CPUs=64 RealMemory=64000 Gres=gpu:fake:2"
        gres = f"NodeName=here Name=gpu Type=fake File={self.folder}/gpu[0-1]\n"
        self.write_conf(name, "127.0.0.1", f"{self.folder}/spool", f"{node} State=UNKNOWN", gres)
        self.start_munged()
        self.start("slurmctld", ["slurmctld", "-D"])
        self.start("slurmd", ["slurmd", "-D", "-N", "here"])
        eventually(lambda: self.idle() == 1, START_S)
