"""The scheduler's commands, on the machine where it is."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from nnilite.errors import ConfigError, JobRefused, NoCapacity, Place, ServiceError
from nnilite.services.cluster.login import LoginHost
from nnilite.services.cluster.queued_job import QueuedJob
from nnilite.services.cluster.scheduler_api import REFUSED, Look, SchedulerApi, no_answer, version_in
from nnilite.services.cluster.shell_scripts import read_script
from nnilite_batch._answer_reader import AnswerReader
from nnilite_batch._config import BatchConfig
from nnilite_batch._templates import find_programs

log = logging.getLogger(__name__)

_SUBMIT_S = 100.0
_FOUND = 78
_MOST_EXPLAINED = 50
_EXPLAIN_PAUSE_S = 15.0
"""A scheduler is asked at most so often why jobs wait: that is work for it."""
_HISTORY_PAUSE_S = 10.0

# Each but PROGRAMS gets the folder of all files as $1.
_script = partial(read_script, __file__)
PROGRAMS, SUBMIT, CANCEL, RUN = map(_script, ("programs", "submit", "cancel", "run"))


class BatchApi(SchedulerApi):
    """All that is asked of a scheduler. Methods raise ServiceError if it cannot be asked now."""

    def __init__(self, host: LoginHost, config: BatchConfig, root: str = "") -> None:
        super().__init__(host, root)
        self._config = config
        self._commands = config.described.commands
        self._title = config.described.title
        self._read = AnswerReader(config.described)
        self._reasons: dict[str, str] = {}
        self._past: dict[str, QueuedJob] = {}
        self._explained_s = self._history_s = float("-inf")

    async def check(self) -> None:
        """See whether the scheduler's commands are there, and it answers. Raises: ConfigError."""
        named = (getattr(self._commands, name) for name in ("submit", "status", "cancel", "check", "find"))
        programs = find_programs([template for template in named if template])
        answer = await self.host.run(PROGRAMS, *programs)
        absent = answer.text.split()
        if absent:
            cure = "set schedulerPath to their folder, or loginSetUp to what brings them into PATH"
            place = Place(field="login" if self.host.is_remote else None)
            raise ConfigError(f"{self.host.title} has no {', '.join(absent)}; {cure}", place)
        answer = await self.host.run(self._config.command("check") or ":")
        if answer.status:
            raise ServiceError(f"{self._title} does not answer: {answer.reason}")
        self.version = version_in(answer.text)

    async def try_out(self, script: str, gpus: int | None) -> None:
        command = self._config.command("try_out", "nni-test", gpus)
        if command:
            answer = await self.host.run(command, given=script.encode())
            if answer.status:
                raise self._refusal(answer.reason)

    async def submit(self, folder: str, name: str, script: str, gpus: int | None = None) -> str:
        commands = (self._config.command("find", name), self._config.command("submit", name, gpus))
        words = (self.files.root, folder, *commands)
        answer = await self.host.run(SUBMIT, *words, given=script.encode(), limit_s=_SUBMIT_S)
        output = answer.text.strip()
        if answer.status == _FOUND:
            return output
        # Grid Engine warns of a job that it has taken by the status of an error.
        number = self._read.job_id(output) or self._read.job_id(answer.complaint)
        if number and answer.status in (0, REFUSED):
            return number
        if answer.status == REFUSED:
            raise self._refusal(" ".join(f"{output} {answer.complaint}".split()) or answer.reason)
        if answer.status:
            raise no_answer(self._title, name, answer)
        raise ConfigError(f"no id of a job is in what `submit` prints: {output[:300]!r}", Place(field="patterns.jobId"))

    def _refusal(self, words: str) -> ServiceError | ConfigError:
        """Return the error for a complaint: one that stays, one that lets the trial wait, or one that may pass."""
        if self._read.says("full", words):
            return NoCapacity(f"jobs have to end first; {self._title} says: {words}")
        if self._read.says("refused", words):
            return JobRefused(f"{self._title} refuses it; it says: {words}")
        return ServiceError(f"{self._title} does not take the job now: {words}")

    async def look(self, prefix: str, ids: Sequence[str], files: Iterable[str]) -> Look:
        listing = ["/bin/sh", "-c", self._config.command("status", ids=ids)] if ids else ["true"]
        listed = await self.files.look(listing, files)
        if listed.status and not self._read.says("missing", listed.complaint):
            return Look(None, listed.sizes, f"{self._title} does not answer: {listed.reason}", listed.hanging)
        jobs = self._read.jobs(listed.output.decode("utf-8", "replace"))
        found = await self._add_reasons({number: jobs[number] for number in ids if number in jobs})
        return Look(found, listed.sizes, hanging=listed.hanging)

    async def _add_reasons(self, jobs: dict[str, QueuedJob]) -> dict[str, QueuedJob]:
        """Return the same jobs, those that wait with the reason, if `status` did not give it."""
        silent = [job.id for job in jobs.values() if job.needs_reason][:_MOST_EXPLAINED]
        now = time.monotonic()
        if silent and self._commands.reasons and now - self._explained_s >= _EXPLAIN_PAUSE_S:
            self._explained_s = now
            answer = await self.host.run(RUN, self.files.root, self._config.command("reasons", ids=silent))
            self._reasons = self._read.reasons(answer.text)
        return {job.id: job.explained(self._reasons.get(job.id, "")) for job in jobs.values()}

    async def history(self, ids: Sequence[str]) -> Mapping[str, QueuedJob]:
        # Records are written late and may be slow to search, so no answer means nothing.
        now, known = time.monotonic(), {number: self._past[number] for number in ids if number in self._past}
        if not self._commands.history or len(known) == len(ids) or now - self._history_s < _HISTORY_PAUSE_S:
            return known
        self._history_s = now
        answer = await self.host.run(RUN, self.files.root, self._config.command("history", ids=ids))
        self._past = {**known, **self._read.read_past_jobs(answer.text)}
        return self._past

    async def cancel(self, folder: str, job: str) -> None:
        await self._end(CANCEL, folder, self._config.command("cancel", id=job) if job else "")

    async def kill(self, job: str) -> None:
        await self._end(RUN, self._config.command("cancel", id=job))

    async def _end(self, script: str, *words: str) -> None:
        answer = await self.host.run(script, self.files.root, *words)
        output = answer.complaint + answer.text
        if answer.status and not self._read.says("missing", output):
            raise ServiceError(f"{self._title} does not end a job: {' '.join(output.split()) or answer.reason}")
