"""The commands of Slurm, on the machine where Slurm is."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Iterable, Sequence

from nnilite.errors import ConfigError, JobRefused, NoCapacity, Place, ServiceError
from nnilite.services.cluster.login import LoginHost, ShellAnswer
from nnilite.services.cluster.queued_job import QueuedJob
from nnilite.services.cluster.scheduler_api import REFUSED, Look, SchedulerApi, no_answer, version_in
from nnilite.units import format_duration
from nnilite_slurm import _shell as shell
from nnilite_slurm._listing import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    from_json,
    parse_sacct_text,
    parse_squeue_text,
    read_time_limits,
)

log = logging.getLogger(__name__)

_JSON_SINCE = (21, 8)
_JSON_MAX_BYTES = 2_000_000
_SUBMIT_S = 90.0
_FULL = 78
_FULL_PAUSE_S = 5.0
"""How long Slurm is not asked again after it has accepted no job: it is busy then."""
_ACCOUNTING_OFF = "accounting storage is disabled"


class SlurmApi(SchedulerApi):
    """All requests to Slurm. Methods raise ServiceError if Slurm is unavailable now."""

    def __init__(self, host: LoginHost, root: str = "") -> None:
        super().__init__(host, root)
        self.json = True  # whether squeue and sacct are asked for JSON
        self.accounting = True  # assumed until Slurm says otherwise
        self.user: int | None = None  # the number of the user whose jobs these are, once it is known
        self._full = NoCapacity("")  # why it has accepted no job,
        self._full_until_s = 0.0  # and until when that counts

    # ------------------------------------------------------------ opening

    async def check(self) -> None:
        """Check that Slurm is available. Raises: ConfigError."""
        answer = await self.host.run("sbatch --version </dev/null && squeue --version </dev/null && id -u")
        self.version = version_in(answer.text)
        if answer.status or not self.version:
            raise ConfigError(
                _describe_no_slurm(answer, self.host.title), Place(field="login" if self.host.is_remote else None)
            )
        self.json = self.version >= _JSON_SINCE
        user = answer.text.split()[-1]
        self.user = int(user) if user.isascii() and user.isdecimal() else None

    async def try_out(self, script: str, gpus: int | None) -> None:
        """Have Slurm check a script without submitting it. Raises: ConfigError for what it will never accept."""
        answer = await self.host.run("exec sbatch --test-only /dev/stdin", given=script.encode())
        if answer.status:
            raise refusal(answer.reason)

    async def check_time(self, partitions: str, limit_s: float) -> None:
        """Check that a partition allows a time limit: `sbatch --test-only` does not. Raises: ConfigError."""
        answer = await self.host.run("exec timeout 15 sinfo --noheader --format='%P|%l' </dev/null")
        if answer.status:
            log.info("cannot ask for the time limits of partitions: %s", answer.reason)
            return
        known = read_time_limits(answer.output.decode("utf-8", "replace"))
        most_s = max((known.get(name, math.inf) for name in partitions.split(",")), default=math.inf)
        if limit_s > most_s:
            where = f"partition {partitions}" if partitions else "default partition"
            wanted, allowed = format_duration(limit_s), format_duration(most_s)
            raise ConfigError(
                f"is {wanted}, and the {where} allows {allowed} at most: jobs would never start; lower it, or choose "
                "another partition",
                Place(field="timeLimit"),
            )

    # ------------------------------------------------------------ submitting

    async def write_tasks(self, folder: str, tasks: Sequence[str]) -> None:
        """Make the folder of a job array with the list of its tasks."""
        await self.files.checked(shell.WRITE_TASKS, folder, given="".join(f"{task}\n" for task in tasks).encode())

    async def submit(self, folder: str, name: str, script: str, gpus: int | None) -> str:
        """Submit a script once for each folder. Return the job's id. Raises: NoCapacity, ConfigError, ServiceError."""
        if time.monotonic() < self._full_until_s:
            raise self._full.with_traceback(None)
        answer = await self.host.run(
            shell.SUBMIT, self.files.root, folder, name, given=script.encode(), limit_s=_SUBMIT_S
        )
        if answer.status == _FULL:
            self._full, self._full_until_s = make_full_queue(answer.reason), time.monotonic() + _FULL_PAUSE_S
            raise self._full
        if answer.status == REFUSED:
            raise refusal(answer.reason)
        if answer.status:
            raise no_answer("Slurm", name, answer)
        return answer.text.strip()

    # ------------------------------------------------------------ watching

    async def look(self, prefix: str, ids: Sequence[str], files: Iterable[str]) -> Look:
        """Ask for all jobs whose names begin so, and the sizes of files, in one command."""
        looked_at = list(files)
        before = "SLURM_TIME_FORMAT=%s; export SLURM_TIME_FORMAT\n"
        listed = await self.files.look(self._listing(), looked_at, before)
        if listed.status:
            if self.json and _knows_no_json(listed.complaint):
                self.json = False
                return await self.look(prefix, ids, looked_at)
            return Look(None, listed.sizes, f"Slurm does not answer: {listed.reason}", listed.hanging)
        try:
            jobs = self._read(listed.output, prefix)
        except ServiceError as error:
            complaint = listed.complaint.strip() or error
            return Look(None, listed.sizes, f"Slurm does not answer: {complaint}", listed.hanging)
        found = _collect_by_id(job for job in jobs if job.name.startswith(prefix))
        return Look(found, listed.sizes, hanging=listed.hanging)

    def _listing(self) -> list[str]:
        if self.json:
            return ["squeue", "--states=all", "--json"]
        # By number: the user may have a name there that the list of groups and users does not know.
        user = 'exec squeue --states=all --noheader --array --user="$(id -u)" --format="$0"'
        return ["/bin/sh", "-c", user, SQUEUE_FORMAT]

    def _read(self, listed: bytes, prefix: str) -> list[QueuedJob]:
        if not self.json:
            return parse_squeue_text(listed.decode("utf-8", "replace"))
        # squeue ignores the field list, and lists the jobs of all users.
        jobs = from_json(listed, prefix, self.user)
        if len(listed) > _JSON_MAX_BYTES:
            log.info("squeue answered with %d bytes of JSON; using its text output from now on", len(listed))
            self.json = False
        return jobs

    async def history(self, ids: Sequence[str]) -> dict[str, QueuedJob]:
        """Return what the accounting knows of jobs that slurmctld has forgotten.

        Nothing where there is no accounting.
        """
        if not self.accounting:
            return {}
        if self.version >= _JSON_SINCE:
            try:
                return _collect_by_id(from_json(await self._run_sacct(ids, "--json")))
            except ServiceError as error:
                log.info("using the text output of sacct: %s", error)
        output = await self._run_sacct(ids, f"-P -n -X -o {SACCT_FIELDS}")
        return _collect_by_id(parse_sacct_text(output.decode("utf-8", "replace")))

    async def _run_sacct(self, ids: Sequence[str], options: str) -> bytes:
        script = f'SLURM_TIME_FORMAT=%s; export SLURM_TIME_FORMAT\nexec timeout 15 sacct -j "$1" {options} </dev/null'
        answer = await self.host.run(script, ",".join(ids))
        if _ACCOUNTING_OFF in answer.complaint + answer.text:
            self.accounting = False
            return b"" if "json" not in options else b'{"jobs": []}'
        if answer.status:
            raise ServiceError(f"sacct does not answer: {answer.reason}")
        return answer.output

    # ------------------------------------------------------------ nodes that come and go

    async def join(self, folder: str, script: str, taken: Sequence[str]) -> str:
        """Submit a job that joins a trial on a node other than these; return its id, "" if the trial is over.

        Raises: ServiceError.
        """
        words = (self.files.root, folder, ",".join(taken))
        answer = await self.host.run(shell.JOIN, *words, given=script.encode(), limit_s=_SUBMIT_S)
        if answer.status:
            raise ServiceError(f"sbatch: {answer.reason}")
        return answer.text.strip().partition(";")[0]

    async def end_joining_jobs(self, name: str, only_waiting: bool = False) -> None:
        """End all jobs of this name. Raises: ServiceError."""
        which = "--state=PENDING" if only_waiting else ""
        answer = await self.host.run('timeout 15 scancel ${1:+"$1"} --name="$2" </dev/null', which, name)
        if answer.status and not _ENDED_ALREADY.search(answer.complaint):
            raise ServiceError(f"scancel: {answer.reason}")

    async def ask_to_end(self, job: str) -> None:
        """Send SIGTERM to the keeper of a job, as before a spot node is taken away. Raises: ServiceError."""
        await self._change('timeout 15 scancel --batch --signal=TERM "$1" </dev/null', job)

    async def release(self, job: str, nodes: Sequence[str]) -> None:
        """Leave a running job no other nodes than these. Raises: ServiceError."""
        await self._change('timeout 15 scontrol update jobid="$1" nodelist="$2" </dev/null', job, ",".join(nodes))

    async def _change(self, script: str, *words: str) -> None:
        answer = await self.host.run(script, *words)
        if answer.status:
            raise ServiceError(f"Slurm refuses: {answer.reason}")

    # ------------------------------------------------------------ ending

    async def cancel(self, folder: str, job: str) -> None:
        answer = await self.host.run(shell.CANCEL, self.files.root, folder, job)
        if answer.complaint and not _ENDED_ALREADY.search(answer.complaint):
            raise ServiceError(f"scancel: {answer.reason}")

    async def kill(self, job: str) -> None:
        """Send SIGTERM to all of a job, and SIGKILL after Slurm's own KillWait."""
        await self.host.run('timeout 15 scancel "$1" </dev/null', job)

    async def remove(self, folder: str, job: str) -> None:
        """End what still runs, and remove what holds a secret or much space."""
        await self.files.checked(shell.REMOVE, folder, job)


_ENDED_ALREADY = re.compile(r"Invalid job id|already complet|Job/step already|not running", re.IGNORECASE)
_REFUSALS = (
    (r"invalid partition|partition name", "partition", JobRefused),
    (r"account.*limit|job submit limit|violates accounting|QOS.*(limit|max)|AssocMax|AssocGrp|QOSMax", "", NoCapacity),
    (r"invalid account", "account", JobRefused),
    (r"invalid qos", "qos", JobRefused),
    (r"generic resource|gres", "gres", JobRefused),
    (r"feature", "constraint", JobRefused),
    (r"reservation", "reservation", JobRefused),
    (r"time limit|--time", "timeLimit", JobRefused),
    (r"array", "jobArraySize", JobRefused),
    (r"unrecognized option|invalid option|requires an argument", "sbatchLines", JobRefused),
    (r"node configuration is not available|more processors|node count", "", JobRefused),
)


_AWAY_WORDS = re.compile(r"Unable to contact|Connection refused|timed out|Socket timed out", re.IGNORECASE)
_PREFIXES = re.compile(r"\bsbatch: (error: )?|allocation failure: |Batch job submission failed: ")


def refusal(words: str) -> ServiceError | ConfigError:
    """Return the error for sbatch's words: one that is lasting, one that lets the trial wait, or one that may pass."""
    message = _PREFIXES.sub("", words)
    if _AWAY_WORDS.search(words):
        return ServiceError(f"Slurm does not answer: {message}")
    for pattern, place, kind in _REFUSALS:
        if re.search(pattern, words, re.IGNORECASE):
            if kind is NoCapacity:
                return NoCapacity(
                    f"a limit of the account is reached, so other jobs must end first; Slurm says: {message}"
                )
            what = "Slurm refuses the job" if place else "no node that is up has what a trial asks for"
            return JobRefused(f"{what}; it says: {message}", Place(field=place or None))
    return ServiceError(f"Slurm does not accept the job now: {message}")


def make_full_queue(words: str) -> NoCapacity:
    """Return the error for sbatch's words when it would wait and try again.

    >>> print(make_full_queue("sbatch: error: Slurm job queue full, sleeping and retrying"))
    Slurm accepts no job now, ... (MaxJobCount); it says: Slurm job queue full
    """
    message = re.sub(r",( sleeping and)? retrying.*", "", _PREFIXES.sub("", words))
    cause = "most likely because it has as many as it may have (MaxJobCount)"
    return NoCapacity(f"Slurm accepts no job now, {cause}; it says: {message}")


def _describe_no_slurm(answer: ShellAnswer, title: str) -> str:
    if "not found" in answer.complaint:
        return (
            f"{title} has no sbatch: set login to the login node of the cluster, or slurmPath to the folder of "
            f"Slurm's commands ({answer.reason})"
        )
    return f"Slurm cannot be used on {title}: {answer.reason}"


def _knows_no_json(complaint: str) -> bool:
    text = complaint.lower()
    return "unrecognized option" in text or "serializer" in text or "json" in text or "data_parser" in text


def _collect_by_id(jobs: Iterable[QueuedJob]) -> dict[str, QueuedJob]:
    return {job.id: job for job in jobs}
