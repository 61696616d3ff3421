"""Accounting for a lab: MariaDB and slurmdbd on the head, and accounts with limits."""

from __future__ import annotations

import shutil

from platforms.hosts.hosts import USER
from platforms.slurm.daemons import NO_ACCOUNTING, search_path
from platforms.slurm.lab import PLACE, SlurmLab

PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "mariadb")
ACCOUNTS = {"physics": "", "chemistry": "MaxJobs=1", "biology": "MaxSubmitJobs=1", "nobodys": None}
_SLURMDBD = """
AuthType=auth/munge
AuthInfo=socket={place}/munge/socket
DbdHost={host}
DbdAddr={address}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
LogFile=/var/tmp/slurmdbd.log
PidFile=/run/slurmdbd.pid
"""
_CONF = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={address}
AccountingStoragePass={place}/munge/socket
AccountingStorageEnforce=associations,limits,qos
"""
_DATABASE = "/var/tmp/database"


def missing() -> str:
    """Why no accounting can be had here; "" if it can."""
    absent = [program for program in PROGRAMS if shutil.which(program, path=search_path()) is None]
    return f"not installed: {', '.join(absent)} (Debian's slurmdbd and mariadb-server)" if absent else ""


class Accounting:
    """Turns the accounting of a lab on, and off again."""

    def __init__(self, lab: SlurmLab) -> None:
        self._lab = lab

    def open(self) -> None:
        lab = self._lab
        head = lab.head
        facts = {"place": PLACE, "host": head.name, "address": head.address}
        head.run(
            f"cat >/etc/slurm/slurmdbd.conf <<'E'\n{_SLURMDBD.format(**facts)}\nE\n"
            "chmod 600 /etc/slurm/slurmdbd.conf; mkdir -p /run/mysqld\n"
            f"mariadb-install-db --no-defaults --datadir={_DATABASE} --user=root "
            "--auth-root-authentication-method=socket --skip-test-db >/var/tmp/install.log 2>&1\n"
            f"setsid mariadbd --no-defaults --datadir={_DATABASE} --socket=/run/mysqld/mysqld.sock --skip-networking "
            "--user=root --innodb-buffer-pool-size=32M </dev/null >/var/tmp/database.log 2>&1 &"
        )
        lab.await_answer("mariadb --no-defaults -S /run/mysqld/mysqld.sock -e 'select 1' 2>/dev/null")
        lab.configure(_CONF.format(address=head.address, place=PLACE))
        head.run("setsid slurmdbd -D </dev/null >/var/tmp/slurmdbd.out 2>&1 &")
        lab.await_answer("sacctmgr -n show configuration 2>/dev/null | grep DbdHost")
        lab.ask("sacctmgr -i add cluster lab")
        for name, limit in ACCOUNTS.items():
            lab.ask(f"sacctmgr -i add account {name} cluster=lab")
            if limit is not None:
                lab.ask(f"sacctmgr -i add user {USER} account={name} cluster=lab {limit}")
        self._restart(_CONF.format(address=head.address, place=PLACE))

    def _restart(self, accounting: str) -> None:
        self._lab.kill_slurmctld()
        self._lab.configure(accounting)
        self._lab.start_slurmctld()
        self._lab.await_nodes()

    def close(self) -> None:
        self._restart(NO_ACCOUNTING)
        self._lab.head.run("pkill -9 -x slurmdbd; pkill -9 -x mariadbd; true")
