"""What a hybrid service asks of the rules before it places a job, and notes there when it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from nnilite._engine import messages
from nnilite._engine.rules import Rules
from nnilite.errors import ServiceError
from nnilite.service import Job


class LivePlacementNotes:
    """The `PlacementNotes` of a running engine. `commit` stores a message; false if it was not wanted any more."""

    def __init__(
        self, rules: Rules, now: Callable[[], float], commit: Callable[[messages.Input], Awaitable[bool]]
    ) -> None:
        self._rules = rules
        self._now = now
        self._commit = commit

    def asked(self, job: Job) -> str:
        """Return the member that was asked last to take a job, "" if none was."""
        live = self._rules.live.get(job.trial)
        attempt = live.attempt if live is not None else None
        # After a clear refusal by all, none of them has it, and the placement decides again.
        if live is None or not live.unanswered:
            return ""
        return attempt.service if attempt is not None and attempt.number == job.attempt else ""

    def held(self, job: Job) -> Counter[str]:
        """Return how many trials, without that of the job, each member has, or may have."""
        others = (live for live in self._rules.live.values() if live.trial.id != job.trial)
        return Counter(live.attempt.service for live in others if live.attempt is not None and live.is_placed)

    def tried(self, job: Job) -> Sequence[str]:
        """Return the members that had the earlier attempts of the job's trial."""
        live = self._rules.live.get(job.trial)
        return live.tried if live is not None else ()

    async def record(self, job: Job, member: str) -> None:
        """Commit that this member is going to be asked. Raises: ServiceError if the job is no longer needed."""
        if not await self._commit(messages.Asked(job.trial, job.attempt, member, self._now())):
            raise ServiceError(f"{job.name} is no longer needed")
