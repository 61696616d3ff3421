"""Why a job waits, and how it ended: Slurm's words and ours."""

from __future__ import annotations

_WAITS = {
    "Resources": "nodes with what it asks for are busy",
    "Priority": "jobs with a higher priority are before it",
    "Dependency": "it waits for another job",
    "None": "Slurm has not looked at it yet",
    "BeginTime": "its time to begin has not come",
    "InactiveLimit": "Slurm is being reconfigured",
    "JobArrayTaskLimit": "as many trials of its job array run as may at once",
    "JobHeldUser": "it is held: `scontrol release` lets it go",
    "JobHeldAdmin": "an administrator holds it",
    "JobHoldMaxRequeue": "it was put back into the queue too often, and is held",
    "JobLaunchFailure": "it could not be started on its node",
    "Licenses": "a license that it needs is in use",
    "NodeDown": "a node that it needs is down",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is not active",
    "PartitionNodeLimit": "it asks for more nodes than its partition gives, or its nodes are down or drained",
    "PartitionTimeLimit": "timeLimit is above that of its partition: it will never start",
    "QOSTimeLimit": "timeLimit is above that of its quality of service: it will never start",
    "Prolog": "the cluster's own prolog runs",
    "ReqNodeNotAvail": "the nodes that it needs are down, drained or reserved",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation was deleted",
    "BadConstraints": "no node has what it asks for: it will never start",
    "AccountNotAllowed": "the account may not use this partition: it will never start",
    "QOSNotAllowed": "the quality of service is not allowed here: it will never start",
    "InvalidAccount": "the account is not valid: it will never start",
    "InvalidQOS": "the quality of service is not valid: it will never start",
    "MaxMemPerLimit": "memory is above what may be asked for: it will never start",
    "Cleaning": "what it left on its node is being cleaned up",
    "SchedDefer": "Slurm puts its look at it off",
}
_ENDS = {
    "BOOT_FAIL": "its node did not boot",
    "DEADLINE": "its deadline has passed",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "it took more memory than it may: set `memory` higher",
    "PREEMPTED": "another job took its place",
    "REVOKED": "another cluster has taken it",
    "TIMEOUT": "it reached its time limit: set timeLimit higher",
}


def why_it_waits(reason: str) -> str:
    """What a job waits for, in our words and Slurm's.

    >>> why_it_waits("Resources")
    'waits in Slurm (Resources): nodes with what it asks for are busy'
    """
    name = reason.split(",")[0].strip("() ")
    ours = _WAITS.get(name) or _limit(name)
    return f"waits in Slurm ({reason or 'None'})" + (f": {ours}" if ours else "")


def _limit(name: str) -> str:
    """The many limits of accounts and qualities of service, of which the names say which."""
    what = {"Assoc": "the account or user", "QOS": "the quality of service"}
    for prefix, who in what.items():
        if name.startswith(prefix) and ("Max" in name or "Grp" in name):
            return f"{who} is over a limit; it starts when other jobs have ended"
    return ""


def how_it_ended(state: str, reason: str = "") -> str:
    """A sentence on the end of a job by Slurm's word.

    >>> how_it_ended("PREEMPTED")
    'Slurm: PREEMPTED, another job took its place'
    """
    told = _ENDS.get(state) or ("" if reason in ("", "None") else reason)
    return f"Slurm: {state}" + (f", {told}" if told else "")
