"""A stand-in of horovodrun that starts processes as Horovod 0.28 does with Gloo: here by a shell, elsewhere by `ssh`.

horovodrun -np N --disable-cache -H HOST:SLOTS,... COMMAND...

It first checks that each other host can be reached. All processes get its whole environment, and if one of them fails,
it ends the others. Horovod itself has to be built with a compiler and a framework.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

SSH = "ssh -o PasswordAuthentication=no -o StrictHostKeyChecking=no {}   {} {}"


def is_here(host: str) -> bool:
    try:
        address = socket.gethostbyname(host)
    except OSError:
        return False
    with socket.socket() as tried:
        try:
            tried.bind((address, 0))
        except OSError:
            return False
    return True


def main(arguments: list[str]) -> int:
    size, hosts, command = int(arguments[1]), arguments[4], arguments[5:]
    assert [arguments[0], *arguments[2:4]] == ["-np", "--disable-cache", "-H"]
    slots = [
        (host, number)
        for host, _, count in (one.partition(":") for one in hosts.split(","))
        for number in range(int(count))
    ]
    assert len(slots) == size
    for host in {host for host, _ in slots if not is_here(host)}:
        subprocess.run(SSH.format(host, "-o ConnectTimeout=10", "true"), shell=True, check=True)
    everything = " ".join(f"{name}={shlex.quote(value)}" for name, value in os.environ.items() if name.isidentifier())
    children = []
    for rank, (host, local) in enumerate(slots):
        count = sum(other == host for other, _ in slots)
        own = f"HOROVOD_RANK={rank} HOROVOD_SIZE={size} HOROVOD_LOCAL_RANK={local} HOROVOD_LOCAL_SIZE={count}"
        line = f"{own} {everything} {shlex.join(command)}"
        if not is_here(host):
            line = SSH.format(host, "", shlex.quote(f"cd {Path.cwd()} > /dev/null 2>&1 ; {line}"))
        children.append(subprocess.Popen(line, shell=True, start_new_session=True))
    failed = 0
    while children and not failed:
        pid, status = os.wait()
        failed = os.waitstatus_to_exitcode(status)
        children = [child for child in children if child.pid != pid]
    for child in children:
        os.killpg(child.pid, signal.SIGTERM)
    return abs(failed)


sys.exit(main(sys.argv[1:]))
