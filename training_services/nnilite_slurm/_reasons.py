"""Why a job waits, and how it ended: Slurm's words and ours."""

from __future__ import annotations

_WAITS = {
    "Resources": "nodes with what it asks for are busy",
    "Priority": "jobs with a higher priority are before it",
    "Dependency": "the job waits for another job",
    "None": "Slurm has not considered the job yet",
    "BeginTime": "the job's start time has not come",
    "InactiveLimit": "Slurm is being reconfigured",
    "JobArrayTaskLimit": "the job array runs as many trials as it may at once",
    "JobHeldUser": "the job is held; release it with `scontrol release`",
    "JobHeldAdmin": "an administrator holds the job",
    "JobHoldMaxRequeue": "the job was put back into the queue too often, and is held",
    "JobLaunchFailure": "the job could not be started on its node",
    "Licenses": "a license that the job needs is in use",
    "NodeDown": "a node that the job needs is down",
    "PartitionDown": "the job's partition is down",
    "PartitionInactive": "the job's partition is not active",
    "PartitionNodeLimit": "the job asks for more nodes than its partition gives, or its nodes are down or drained",
    "PartitionTimeLimit": "timeLimit is above that of its partition: it will never start",
    "QOSTimeLimit": "timeLimit is above that of its quality of service: it will never start",
    "Prolog": "the cluster's own prolog runs",
    "ReqNodeNotAvail": "the nodes that the job needs are down, drained or reserved",
    "Reservation": "the job's reservation has not begun",
    "ReservationDeleted": "the job's reservation was deleted",
    "BadConstraints": "no node has what it asks for: it will never start",
    "AccountNotAllowed": "the account may not use this partition: it will never start",
    "QOSNotAllowed": "the quality of service is not allowed here: it will never start",
    "InvalidAccount": "the account is not valid: it will never start",
    "InvalidQOS": "the quality of service is not valid: it will never start",
    "MaxMemPerLimit": "memory is above what may be asked for: it will never start",
    "Cleaning": "Slurm is cleaning up the job's node",
    "SchedDefer": "Slurm has postponed the job",
}
_ENDS = {
    "BOOT_FAIL": "the job's node did not boot",
    "DEADLINE": "the job's deadline has passed",
    "NODE_FAIL": "the job's node failed",
    "OUT_OF_MEMORY": "the job used more memory than allowed; set `memory` higher",
    "PREEMPTED": "another job preempted it",
    "REVOKED": "another cluster took the job",
    "TIMEOUT": "the job reached its time limit; set timeLimit higher",
}


def explain_slurm_wait(reason: str) -> str:
    """Return what a job waits for, in nnilite's words and Slurm's.

    >>> explain_slurm_wait("Resources")
    'waits in Slurm (Resources): nodes with what it asks for are busy'
    """
    name = reason.split(",")[0].strip("() ")
    ours = _WAITS.get(name) or _limit(name)
    return f"waits in Slurm ({reason or 'None'})" + (f": {ours}" if ours else "")


def _limit(name: str) -> str:
    """Return a sentence on the many limits of accounts and qualities of service, whose names say which."""
    what = {"Assoc": "the account or user", "QOS": "the quality of service"}
    for prefix, who in what.items():
        if name.startswith(prefix) and ("Max" in name or "Grp" in name):
            return f"{who} is over a limit; it starts when other jobs have ended"
    return ""


def explain_slurm_end(state: str, reason: str = "") -> str:
    """Return a sentence on the end of a job, from Slurm's state.

    >>> explain_slurm_end("PREEMPTED")
    'Slurm: PREEMPTED, another job preempted it'
    """
    cause = _ENDS.get(state) or ("" if reason in ("", "None") else reason)
    return f"Slurm: {state}" + (f", {cause}" if cause else "")
