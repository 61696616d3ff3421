"""The names of all keys in Redis. Each begins with the prefix of its pool, so that pools can share a server.

    PREFIX:queues              hash: which queues there are; a queue holds the jobs that want the same of a worker
    PREFIX:queue:Q             stream: jobs that wait, with the consumer group `workers`
    PREFIX:bell                stream: something was queued
    PREFIX:workers             set of the workers' ids
    PREFIX:worker:W            hash: what a worker says of itself, the number of its last beat, and when (s)
    PREFIX:job:JOB             hash: a job, from its submission until its removal
    PREFIX:jobs:X              set of the experiment's jobs
    PREFIX:experiment:X        hash: whether it is closed: its manager has stopped; and how it shares the pool:
                               `priority`, `slots` (at most), each held for `period` (ms) after a beat of its worker
    PREFIX:slots               hash: which jobs hold a slot, each until when (ms), and its experiment
    PREFIX:claims              hash: which jobs lack but a slot, each with its place, until when (ms), its experiment
    PREFIX:manager:X           there while the manager of the experiment listens
    PREFIX:mail:PARTY          stream: messages to a worker or to a manager
    PREFIX:file:NAME           a file: code, keeper, checkpoints

All of them expire when they have not been used for long.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "workers"
"""The consumer group of all queues."""

KEPT_S = 7 * 86400
"""How long unused keys stay."""


@dataclass(frozen=True)
class PoolKeys:
    """The keys of one pool."""

    prefix: str

    @property
    def queues(self) -> str:
        return f"{self.prefix}:queues"

    @property
    def queue_prefix(self) -> str:
        return f"{self.prefix}:queue:"

    def queue(self, name: str) -> str:
        return self.queue_prefix + name

    @property
    def bell(self) -> str:
        return f"{self.prefix}:bell"

    @property
    def workers(self) -> str:
        return f"{self.prefix}:workers"

    def worker(self, worker: str) -> str:
        return f"{self.prefix}:worker:{worker}"

    @property
    def job_prefix(self) -> str:
        return f"{self.prefix}:job:"

    def job(self, name: str) -> str:
        return self.job_prefix + name

    def jobs(self, experiment: str) -> str:
        return f"{self.prefix}:jobs:{experiment}"

    def experiment(self, experiment: str) -> str:
        return f"{self.prefix}:experiment:{experiment}"

    @property
    def experiment_prefix(self) -> str:
        return f"{self.prefix}:experiment:"

    @property
    def slots(self) -> str:
        return f"{self.prefix}:slots"

    @property
    def claims(self) -> str:
        return f"{self.prefix}:claims"

    def manager(self, experiment: str) -> str:
        return f"{self.prefix}:manager:{experiment}"

    def mail(self, party: str) -> str:
        return f"{self.prefix}:mail:{party}"

    def file(self, name: str) -> str:
        return f"{self.prefix}:file:{name}"


def name_manager_party(experiment: str) -> str:
    """Return the party name of a manager."""
    return f"manager:{experiment}"


def name_worker_party(worker: str) -> str:
    """Return the party name of a worker."""
    return f"worker:{worker}"
