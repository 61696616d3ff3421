"""Keep what a service remembers of its jobs, from when it first learns of one until that is removed."""

from __future__ import annotations

from dataclasses import dataclass, field

from nnilite.records import Json
from nnilite.service import JobStatus
from nnilite.services.first_seen import FirstSeen
from nnilite_kubernetes._log import PodLog


@dataclass(frozen=True)
class ClusterWarning:
    """The cluster's latest warning about something."""

    uid: str
    look_at: float  # when to ask for it (again)
    text: str = ""


@dataclass
class ClusterMemory:
    """What is known about a job beyond what the informers have now."""

    end: JobStatus | None = None  # the object may go, this stays
    reporter: Json | None = None  # the latest reporting pod that has ended
    seen: FirstSeen = field(default_factory=FirstSeen)
    canceled: bool = False  # by us
    note: ClusterWarning | None = None
    log: PodLog | None = None
    removed: bool = False  # nobody will ask again; kept until its object is gone
