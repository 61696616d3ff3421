"""What a scheduler's commands print, read by the patterns of its description."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nnilite.services.cluster.queued_job import QueuedJob, QueuePhase
from nnilite_batch._scheduler import BatchPatterns, Scheduler

PHASES = {
    "waiting": QueuePhase.WAITING,
    "preparing": QueuePhase.PREPARING,
    "running": QueuePhase.RUNNING,
    "ended": QueuePhase.COMPLETED,
    "canceled": QueuePhase.CANCELED,
    "timedOut": QueuePhase.TIMED_OUT,
    "killed": QueuePhase.KILLED,
    "lost": QueuePhase.LOST,
}
"""What a scheduler's word may stand for, as `states` spells it. `ended`: of its own, whatever the exit code is."""
NOT_SEEN = 71
"""The exit code of a job on a node that does not see the folder."""
_FACTS = ("id", "name", "state", "exit_code", "host", "reason")
_NOTHING = frozenset({"", "-", "undefined", "(null)", "N/A"})


class AnswerReader:
    """Reads the answers of one scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._patterns = scheduler.patterns

    def job_id(self, text: str) -> str:
        """Return the id of a job that was submitted; "" if the text has none."""
        found = re.search(self._patterns.job_id or r"(?!)", text, re.MULTILINE)
        if found is None:
            return ""
        return next((group for group in found.groups() if group), found.group(0))

    def jobs(self, text: str) -> dict[str, QueuedJob]:
        """Return the jobs in the answer of `status`, by their ids. Those on a dead node are lost."""
        nodes = re.compile(self._patterns.dead_node or r"(?!)", re.MULTILINE)
        dead = {match[nodes.groups] for match in nodes.finditer(text)}
        jobs = self._jobs(text, self._patterns.job)
        return {job.id: self._make_stranded(job) if job.host in dead else job for job in jobs}

    def read_past_jobs(self, text: str) -> dict[str, QueuedJob]:
        """Return the jobs in the answer of `history`, by their ids."""
        return {job.id: job for job in self._jobs(text, self._patterns.past_job or self._patterns.job)}

    def reasons(self, text: str) -> dict[str, str]:
        """Return why jobs wait, by their ids, from the answer of `reasons`."""
        found = re.finditer(self._patterns.reasons or r"(?!)", text, re.MULTILINE)
        return {match["id"]: match["reason"].strip() for match in found}

    def says(self, pattern: str, text: str) -> bool:
        """Whether a complaint is one of those that `missing`, `full` or `refused` describe."""
        return re.search(getattr(self._patterns, pattern) or r"(?!)", text, re.MULTILINE) is not None

    def _jobs(self, text: str, pattern: str | None) -> Iterator[QueuedJob]:
        if self._patterns.join:
            text = re.sub(self._patterns.join, "", text)
        for match in re.finditer(pattern or r"(?!)", text, re.MULTILINE):
            facts = _facts(match, self._patterns)
            if facts["id"]:
                yield self._job(facts["id"], facts)

    def _job(self, number: str, facts: Mapping[str, str]) -> QueuedJob:
        state, reason = facts["state"], facts["reason"]
        given = facts.get("exit_code", "")
        code = int(given) if re.fullmatch(r"-?[0-9]{1,9}", given) else None
        phase = self._find_phase(state if code is None else f"{state} {code}")
        if phase is QueuePhase.COMPLETED and code:
            phase = QueuePhase.FAILED
        title, words = self._scheduler.title, state.split()
        word = self._scheduler.numbers.get(words[0] if words else "", " ".join(words))
        if code == NOT_SEEN and not reason:
            reason = "its node does not see `directory`: set it to a folder that login node and compute nodes share"
        ended = f"{title}: {word}" + ("" if code is None else f", exit code {code}")
        explanation = (ended if phase.is_over else f"waits in {title} ({word})") + (f": {reason}" if reason else "")
        return QueuedJob(number, facts["name"], phase, word, explanation, facts["host"], None, code, reason)

    def _find_phase(self, words: str) -> QueuePhase:
        for name, pattern in self._scheduler.states.items():
            if re.fullmatch(pattern, words):
                return PHASES[name]
        return QueuePhase.UNKNOWN

    def _make_stranded(self, job: QueuedJob) -> QueuedJob:
        if job.phase not in (QueuePhase.RUNNING, QueuePhase.PREPARING):
            return job
        words = f"{self._scheduler.title}: its node {job.host} does not answer"
        return QueuedJob(job.id, job.name, QueuePhase.LOST, job.state, words, job.host)


def _facts(match: re.Match[str], patterns: BatchPatterns) -> dict[str, str]:
    groups = match.groupdict()
    found = {}
    for name in _FACTS:
        value, pattern = groups.get(name), getattr(patterns, name)
        if value is None and pattern is not None and name not in groups:
            within = re.search(pattern, match.group(0), re.MULTILINE)
            value = within.group(1) if within else None
        value = (value or "").strip()
        found[name] = "" if value in _NOTHING else value
    return found
