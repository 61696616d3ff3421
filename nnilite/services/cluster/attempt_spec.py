"""The specification of an attempt whose folder is on a disk that the scheduler's nodes share."""

from __future__ import annotations

from nnilite.records import Json
from nnilite.service import Job
from nnilite.services.cluster.job_script import run_limit_s
from nnilite.services.gpu import environment

_LINGER_S = 30.0
"""How long a keeper keeps its node to deliver the remaining events."""


def folder_of(job: Job) -> str:
    """Return the folder of an attempt, relative to the folder of all files."""
    return f"{job.experiment}/trials/{job.trial}/{job.attempt}"


def spec_of(job: Job, root: str, callback: str | None, archive: str, time_limit: float | None) -> dict[str, Json]:
    """Return the keeper's specification. `callback`: where the manager is, if trials report to it."""
    more: dict[str, Json] = {"callback": None, "report": "rest", "send_output": False}
    if callback is not None:
        more = {"callback": callback, "callback_file": f"{root}/{job.experiment}/callback", "send_output": True}
        # What cannot be delivered in this time stays in the folder, so that the node is free for others.
        more["linger_s"] = min(_LINGER_S, job.spec.get("linger_s") or _LINGER_S)
    if job.spec.get("checkpoint_dir"):
        more["checkpoint_dir"] = f"{root}/{job.experiment}/checkpoints/{job.trial}"
    limit_s = run_limit_s(time_limit, float(job.spec.get("grace_s") or 0))
    if limit_s is not None:
        more["max_duration_s"] = min(limit_s, job.spec.get("max_duration_s") or limit_s)
    code = {"archive": f"{root}/cache/{archive}"}
    return job.spec_for(f"{root}/{folder_of(job)}", code=code, env=environment(() if job.gpus == 0 else None), **more)
