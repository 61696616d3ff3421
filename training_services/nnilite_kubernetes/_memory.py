"""What a service keeps in mind of its jobs, from when it first hears of one until that is removed."""

from __future__ import annotations

from dataclasses import dataclass

from nnilite.records import Json
from nnilite.service import JobStatus
from nnilite_kubernetes._log import PodLog


@dataclass(frozen=True)
class Note:
    """The cluster's latest warning about something."""

    uid: str
    looked: float
    text: str


@dataclass
class Memory:
    """What is known of a job beyond what the mirrors have now."""

    end: JobStatus | None = None  # the object may go, this stays
    reporter: Json | None = None  # the latest reporting pod that has ended
    canceled: bool = False  # by us
    note: Note | None = None
    log: PodLog | None = None
    removed: bool = False  # nobody will ask again; kept until its object is gone
