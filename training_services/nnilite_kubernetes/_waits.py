"""The waits before the service draws a conclusion."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ClusterPatience:
    """In seconds. Those of `nnilite.services.job_watch.Patience` are for platforms without a watch."""

    silence_s: float = 60.0
    """A server that has not answered for this time: nothing can be said of jobs."""
    reason_s: float = 20.0
    """For this time after a container was asked to end, the cluster may still report why."""
    overdue_s: float = 60.0
    """For this time after its grace a pod may still be there; after that, its node does not answer."""
    first_note_s: float = 5.0
    """Most pods start before this: only then is the cluster asked what it has to say."""
    note_pause_s: float = 10.0
    """Between two such questions."""
    last_logs_s: float = 10.0
    """For this time an ended job is kept for the logs of its pods."""
