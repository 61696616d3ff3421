"""The cell of a real Grid Engine (Debian's gridengine-master, -exec and -client), in a folder of its own.

GridHere    one node, which is this machine but for its name: trials share files and processes with the tests
GridLab     a head and nodes, hosts of this machine: see `lab`

Grid Engine refuses a host whose name is that of loopback, so the daemons of GridHere have a host name and an /etc/hosts
of their own. They need root for that.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import processes
from nnilite.testing import eventually
from nnilite.testing.ports import free_ports

PROGRAMS = ("qsub", "qstat", "qdel", "qconf", "qacct", "sge_qmaster", "sge_execd", "unshare", "nsenter")
NAME = "gridhost"
GPUS = 2
START_S = 60.0
_LIBRARY = Path("/usr/lib/gridengine")
_SHARE = Path("/usr/share/gridengine")

_QUEUE = {"hostlist": "@allhosts", "load_thresholds": "NONE", "pe_list": "smp", "shell": "/bin/bash"}
_SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "job_load_adjustments": "NONE",
    "schedd_job_info": "true",
}
_PARALLEL = """pe_name smp
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $pe_slots
control_slaves FALSE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""


def missing() -> str:
    """Why no Grid Engine can be started here; "" if it can."""
    if os.geteuid() != 0:
        return "a Grid Engine of its own needs a host name of its own, which only root can give"
    absent = [
        one for one in PROGRAMS if shutil.which(one, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None
    ]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian's gridengine-master, -exec and -client)"
    ubuntu = re.search(r"^ID=ubuntu$", Path("/etc/os-release").read_text(), re.MULTILINE)
    return "Ubuntu's sge_qmaster crashes at its start" if ubuntu else ""


@dataclass
class GridCell:
    """What all daemons and commands of one Grid Engine read. `seen` is the folder as they see it."""

    folder: Path
    seen: Path
    head: str
    ports: tuple[int, int] = field(default_factory=lambda: tuple(free_ports(2)))

    @property
    def variables(self) -> dict[str, str]:
        qmaster, execd = self.ports
        facts = {"SGE_ROOT": self.seen, "SGE_CELL": "default", "SGE_QMASTER_PORT": qmaster, "SGE_EXECD_PORT": execd}
        return {name: str(value) for name, value in facts.items()}

    def write(self, patience_s: int = 300) -> None:
        """Write the files that daemons start from. `patience_s`: until a silent node counts as unknown."""
        common = self.folder / "default" / "common"
        for place in (common, self.folder / "spool/qmaster/job_scripts", self.folder / "spool/execd"):
            place.mkdir(parents=True)
        (self.folder / "util").symlink_to(_SHARE / "util")
        (common / "act_qmaster").write_text(f"{self.head}\n")
        spooling = {
            "admin_user": "root",
            "spooling_method": "classic",
            "spooling_lib": "libspoolc",
            "spooling_params": f"{self.seen}/default/common;{self.seen}/spool/qmaster",
            "qmaster_spool_dir": f"{self.seen}/spool/qmaster",
        }
        (common / "bootstrap").write_text(changed((_SHARE / "default-bootstrap").read_text(), spooling))
        wishes = {
            "execd_spool_dir": f"{self.seen}/spool/execd",
            "min_uid": "0",
            "min_gid": "0",
            # The profile of whoever runs the tests may take its time.
            "login_shells": "csh",
            "load_report_time": "00:00:02",
            "max_unheard": f"00:00:{patience_s:02}" if patience_s < 60 else "00:05:00",
            "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00",
        }
        (self.folder / "configuration").write_text(changed((_SHARE / "default-configuration").read_text(), wishes))
        settings = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items())
        (common / "settings.sh").write_text(settings)

    def qmaster_script(self) -> str:
        """A shell script that fills the spool and starts the qmaster."""
        defaults = (f"{_LIBRARY}/spooldefaults {words}" for words in self._defaults())
        spool = f"{_LIBRARY}/spoolinit classic libspoolc '{self.seen}/default/common;{self.seen}/spool/qmaster' init"
        return "\n".join(["set -e", *self._exports(), spool, *defaults, "/usr/sbin/sge_qmaster"])

    def _defaults(self) -> Sequence[str]:
        resources = _SHARE / "util/resources"
        wanted = (f"complexes {resources}/centry", f"usersets {resources}/usersets", "managers root")
        return (f"configuration {self.seen}/configuration", *wanted)

    def _exports(self) -> list[str]:
        return [f"export {name}={shlex.quote(value)}" for name, value in self.variables.items()]

    def in_cell(self, script: str) -> str:
        """A script with the variables of this cell."""
        return "\n".join([*self._exports(), script])

    def queue_scripts(self, nodes: Sequence[str], slots: int) -> list[str]:
        """Shell scripts that make one queue on these nodes, which have been heard of, and GPUs that are none."""
        draft = self.folder / "draft"
        draft.mkdir(exist_ok=True)
        (draft / "group").write_text(f"group_name @allhosts\nhostlist {' '.join(nodes)}\n")
        (draft / "pe").write_text(_PARALLEL)
        there = self.seen / "draft"
        queue = " ".join(f"-e 's#^{name} .*#{name} {value}#'" for name, value in {**_QUEUE, "qname": "all.q"}.items())
        wishes = " ".join(f"-e 's#^{name} .*#{name} {value}#'" for name, value in _SCHEDULER.items())
        return [
            f"qconf -Ahgrp {there}/group && qconf -Ap {there}/pe",
            f"qconf -sq | sed {queue} -e 's#^slots .*#slots {slots}#' >{there}/queue && qconf -Aq {there}/queue",
            f"qconf -ssconf | sed {wishes} >{there}/scheduler && qconf -Msconf {there}/scheduler",
            f"{{ qconf -sc; echo 'gpu gpu INT <= YES YES 0 0'; }} >{there}/complexes && qconf -Mc {there}/complexes",
            *(f"qconf -aattr exechost complex_values gpu={GPUS} {node}" for node in nodes),
        ]


def changed(text: str, wishes: dict[str, str]) -> str:
    """A configuration of lines of a name and a value, with other values."""
    lines = (line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return "".join(f"{name} {wishes.get(name, value)}\n" for name, value in lines)


class GridHere(GridCell):
    """One node, which is this machine under another name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder, NAME)
        self.bin = folder / "bin"
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write()
        (self.folder / "hosts").write_text(f"127.0.0.1 {NAME}\n127.0.0.1 localhost\n")
        rename = f"hostname {NAME} && mount --bind {self.folder}/hosts /etc/hosts"
        start = f"{rename}\n{self.qmaster_script()}\nexec sleep infinity"
        self._process = self._start(start)
        self._write_commands()
        eventually(lambda: self.works("qconf -sh"), START_S)
        self.ask(f"qconf -as {NAME}; qconf -ah {NAME} || true")
        self.ask("/usr/sbin/sge_execd")
        eventually(lambda: self.works(f"qconf -sel | grep -x {NAME}"), START_S)
        for script in self.queue_scripts([NAME], 64):
            self.ask(script)
        eventually(lambda: " 64 " in self.ask("qstat -f").replace("/64 ", " 64 "), START_S)

    def _start(self, script: str) -> subprocess.Popen[bytes]:
        words = ["unshare", "--mount", "--uts", "--propagation", "private", "/bin/sh", "-c", script]
        with (self.folder / "out").open("ab") as said:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)

    def _write_commands(self) -> None:
        """Commands of Grid Engine that see the host as its daemons do, for the search path of tests.

        Those in /usr/bin would first find out the kind of machine by a compiler, which takes longer than the command.
        """
        self.bin.mkdir()
        assert self._process is not None
        for name in ("qsub", "qstat", "qdel", "qacct", "qselect", "qconf", "qmod", "qrls"):
            place = self.bin / name
            exports = " ".join(f"{key}={shlex.quote(value)}" for key, value in self.variables.items())
            enter = f'nsenter -t {self._process.pid} --mount --uts --wd="$PWD"'
            place.write_text(f'#!/bin/sh\nexec {enter} env {exports} {_LIBRARY}/{name} "$@"\n')
            place.chmod(0o755)

    def ask(self, script: str) -> str:
        """What a shell script prints that uses commands of Grid Engine. Raises: CalledProcessError."""
        assert self._process is not None
        words = ["nsenter", "-t", str(self._process.pid), "--mount", "--uts", "/bin/sh", "-c", self.in_cell(script)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"{script}: {done.stdout}{done.stderr}")
        return done.stdout

    def works(self, script: str) -> bool:
        with contextlib.suppress(RuntimeError):
            self.ask(script)
            return True
        return False

    def daemons(self) -> list[int]:
        """The processes of this cell, by the variable that all of them have."""
        return processes.with_variable(f"SGE_ROOT={self.seen}")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
        for process in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
