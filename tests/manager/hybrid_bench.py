"""Hybrid services for tests, and jobs for them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from nnilite._engine.hybrid import HybridService, Member
from nnilite.service import Job
from nnilite.testing.fakes import fake_context


class Notes:
    """What was noted, as long as this lives."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def asked(self, job: Job) -> str:
        return self.known.get(job.name, "")

    def held(self, job: Job) -> dict[str, int]:
        return Counter(member for name, member in self.known.items() if name != job.name)

    def tried(self, job: Job) -> tuple[str, ...]:
        return ()

    async def record(self, job: Job, member: str) -> None:
        self.known[job.name] = member


def hybrid_of(tmp_path: Path, *members: Member) -> HybridService:
    hybrid = HybridService("hybrid", members, fake_context(tmp_path))
    hybrid.notes = Notes()
    return hybrid


def job(number: int) -> Job:
    return Job(f"nni-e-t{number}-0", "e", f"t{number}", 0, number, {"command": "top level"}, None)
