"""Final refusals of members of a hybrid service: each attempt is offered to a member once."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict

from nnilite.errors import NniliteError

log = logging.getLogger(__name__)

# What a member has said of this many jobs in a row holds for all of them.
_ENOUGH = 3


class MemberRefusals:
    """Final refusals, in memory only: the next manager asks again, since the cause may have been removed."""

    def __init__(self) -> None:
        self._reasons: defaultdict[str, dict[str, str]] = defaultdict(dict)  # by member and job
        self._in_a_row: Counter[str] = Counter()  # how many jobs each member has refused since it took one

    def record(self, member: str, job: str, refusal: NniliteError) -> None:
        self._reasons[member][job] = str(refusal)
        self._in_a_row[member] += 1
        if self._in_a_row[member] == _ENOUGH:
            log.warning("%s gets no more trials, because it refuses all of them: %s", member, refusal)

    def note_taken(self, member: str) -> None:
        self._in_a_row[member] = 0

    def explain_for_all(self, member: str) -> str:
        """Return why a member gets no more jobs, "" if it gets some."""
        return next(reversed(self._reasons[member].values())) if self._in_a_row[member] >= _ENOUGH else ""

    def of_job(self, member: str, job: str) -> str:
        """Return why a member will never take a job, as it said itself; "" if it may."""
        return self.explain_for_all(member) or self._reasons[member].get(job, "")
