"""The commands of Slurm, and the files of trials, on the machine where Slurm is."""

from __future__ import annotations

import io
import json
import logging
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nnilite.errors import ConfigError, NoCapacity, Place, ServiceError
from nnilite.foreign_files import BrokenStream, read_small
from nnilite.records import Json
from nnilite_slurm import _shell as shell
from nnilite_slurm._hanging import HangingFolders, folder_of, no_answer, was_killed
from nnilite_slurm._listing import SACCT_FIELDS, SQUEUE_FORMAT, SlurmJob, from_json, from_sacct_text, from_squeue_text
from nnilite_slurm._login import TRANSFER_S, USUAL_S, LoginHost, ShellAnswer
from nnilite_slurm._watch import NOTE_MAX_BYTES

log = logging.getLogger(__name__)

_JSON_SINCE = (21, 8)
_JSON_MAX_BYTES = 2_000_000
_MOST_SAID_CHARS = 1000
_SUBMIT_S = 90.0
_READ_S = "25"  # for pieces of files, less than a command may take at all
_SHOW_S = "8"  # for one that a person wants to see, less than the manager waits
_CACHE_DAYS = "30"
_UNKNOWN_OUTCOME, _AWAY, _REFUSED, _KNOWN = 76, 75, 77, 3
_ACCOUNTING_OFF = "accounting storage is disabled"


@dataclass(frozen=True)
class Look:
    """What one look has found: jobs in Slurm's queue by their ids, and sizes of files."""

    jobs: Mapping[str, SlurmJob] | None  # None: Slurm does not answer
    sizes: Mapping[str, int]
    trouble: str = ""  # what Slurm says in place of an answer
    hanging: frozenset[str] = frozenset()  # folders of which nothing is known, for they do not answer


@dataclass
class SlurmApi:
    """All that is asked of Slurm. Methods raise ServiceError if it cannot be asked now."""

    host: LoginHost
    root: str = ""  # the folder of all files, absolute, once `prepare` was called
    version: tuple[int, ...] = ()
    json: bool = True  # whether squeue and sacct are asked for JSON
    accounting: bool = True  # as far as is known

    def __post_init__(self) -> None:
        self.hanging = HangingFolders(self.host, lambda: self.root)

    # ------------------------------------------------------------ opening

    async def check_version(self) -> None:
        """Raises: ConfigError if there is no Slurm."""
        answer = await self.host.run("sbatch --version </dev/null && squeue --version </dev/null")
        found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", answer.output)
        if answer.status or found is None:
            raise ConfigError(_no_slurm(answer, self.host.title), Place(field="login" if self._remote else None))
        self.version = tuple(int(part) for part in found.groups() if part)
        self.json = self.version >= _JSON_SINCE

    @property
    def _remote(self) -> bool:
        return self.host.title != "this machine"

    async def prepare(self, directory: str, files: Mapping[str, Path]) -> list[str]:
        """Make the folder. Returns those of the files, by name, that its cache does not have."""
        answer = await self.host.run(shell.PREPARE, directory, _CACHE_DAYS, *files)
        if answer.status:
            raise ConfigError(f"cannot be made on {self.host.title}: {answer.words}", Place(field="directory"))
        *sizes, self.root = answer.output.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n", len(files))
        known = zip(files.items(), sizes, strict=True)
        return [name for (name, source), size in known if size.strip() != str(source.stat().st_size)]

    async def upload(self, name: str, source: Path) -> None:
        """Bring a file to the cache."""
        await self._checked(shell.UPLOAD, name, given=source, limit_s=TRANSFER_S)

    async def take_code(self, keeper: str, name: str, storage: Mapping[str, Json], pythons: Sequence[str]) -> str:
        """Have the code brought to the cache from the shared storage. Returns why that is not possible, or ""."""
        given = json.dumps(dict(storage)).encode()
        try:
            words = (self.root, keeper, name, *pythons)
            answer = await self.host.run(shell.TAKE_CODE, *words, given=given, limit_s=TRANSFER_S)
        except ServiceError as error:
            return str(error)
        said = answer.output.decode("utf-8", "replace").strip()
        return "" if answer.status == 0 else said[-_MOST_SAID_CHARS:] or answer.words

    async def try_out(self, script: str) -> None:
        """Have Slurm look at a script without submitting it. Raises: ConfigError for what it will never take."""
        answer = await self.host.run("exec sbatch --test-only /dev/stdin", given=script.encode())
        if answer.status:
            raise refusal(answer.words)

    # ------------------------------------------------------------ submitting

    async def write_spec(self, folder: str, spec: bytes) -> bool:
        """Make an attempt's folder with its specification; False if it is there already."""
        answer = await self.host.run(shell.WRITE_SPEC, self.root, folder, str(len(spec)), given=spec)
        if answer.status not in (0, _KNOWN):
            raise ServiceError(f"the folder {self.root}/{folder} cannot be written: {answer.words}")
        return answer.status == 0

    async def tell_address(self, experiment: str, url: str) -> None:
        """Write down where the manager is, for keepers."""
        await self._checked(shell.CALLBACK, experiment, given=url.encode())

    async def write_tasks(self, folder: str, tasks: Sequence[str]) -> None:
        """Make the folder of a job array with the list of its tasks."""
        await self._checked(shell.WRITE_TASKS, folder, given="".join(f"{task}\n" for task in tasks).encode())

    async def submit(self, folder: str, name: str, script: str) -> str:
        """Submit a script once for each folder; the job's id. Raises: NoCapacity, ConfigError, ServiceError."""
        answer = await self.host.run(shell.SUBMIT, self.root, folder, name, given=script.encode(), limit_s=_SUBMIT_S)
        if answer.status == _REFUSED:
            raise refusal(answer.words)
        if answer.status == _UNKNOWN_OUTCOME:
            raise ServiceError(f"Slurm has not said whether it has taken the job {name}; it will be looked for")
        if answer.status:
            raise ServiceError(f"Slurm does not answer: {answer.words}")
        return answer.output.decode("ascii", "replace").strip()

    # ------------------------------------------------------------ watching

    async def look(self, prefix: str, files: Iterable[str]) -> Look:
        """All jobs whose names begin so, and the sizes of files, in one command."""
        look = await self.hanging.look(files, partial(self._look, prefix))
        return replace(look, hanging=self.hanging.aside())

    async def _look(self, prefix: str, files: Sequence[str], limit_s: str) -> Look | None:
        mark = secrets.token_hex(8)
        script = f"SLURM_TIME_FORMAT=%s; export SLURM_TIME_FORMAT\n{shell.POLL}"
        words = (self.root, mark, limit_s, *self._listing())
        answer = await self.host.run(script, *words, given=b"".join(name.encode() + b"\0" for name in files))
        if was_killed(answer):
            return None
        listed, found, rest = answer.output.rpartition(f"\n{mark} ".encode())
        status, _, sizes = rest.partition(b"\n")
        if not found:
            raise ServiceError(f"{self.host.title}: {answer.words}")
        if status.strip() != b"0":
            if self.json and _knows_no_json(answer.complaint):
                self.json = False
                return await self._look(prefix, files, limit_s)
            return Look(None, _sizes(sizes), f"Slurm does not answer: {answer.words}")
        try:
            jobs = self._read(listed)
        except ServiceError as error:
            return Look(None, _sizes(sizes), f"Slurm does not answer: {answer.complaint.strip() or error}")
        return Look(_by_id(job for job in jobs if job.name.startswith(prefix)), _sizes(sizes))

    def _listing(self) -> list[str]:
        if self.json:
            return ["squeue", "--states=all", "--json"]
        # By number: the user may have a name there that the list of groups and users does not know.
        user = 'exec squeue --states=all --noheader --array --user="$(id -u)" --format="$0"'
        return ["/bin/sh", "-c", user, SQUEUE_FORMAT]

    def _read(self, listed: bytes) -> list[SlurmJob]:
        if not self.json:
            return from_squeue_text(listed.decode("utf-8", "replace"))
        jobs = from_json(listed)
        # It ignores what it is told to leave out, and lists the jobs of everybody.
        if len(listed) > _JSON_MAX_BYTES:
            log.info("squeue answers with %d bytes of JSON, so that it is asked for text from now on", len(listed))
            self.json = False
        return jobs

    async def history(self, ids: Sequence[str]) -> dict[str, SlurmJob]:
        """What the accounting knows of jobs that slurmctld has forgotten; nothing where there is none."""
        if not self.accounting:
            return {}
        if self.version >= _JSON_SINCE:
            try:
                return _by_id(from_json(await self._sacct(ids, "--json")))
            except ServiceError as error:
                log.info("sacct is asked for text: %s", error)
        told = await self._sacct(ids, f"-P -n -X -o {SACCT_FIELDS}")
        return _by_id(from_sacct_text(told.decode("utf-8", "replace")))

    async def _sacct(self, ids: Sequence[str], options: str) -> bytes:
        script = f'SLURM_TIME_FORMAT=%s; export SLURM_TIME_FORMAT\nexec timeout 15 sacct -j "$1" {options} </dev/null'
        answer = await self.host.run(script, ",".join(ids))
        if _ACCOUNTING_OFF in answer.complaint + answer.output.decode("utf-8", "replace"):
            self.accounting = False
            return b"" if "json" not in options else b'{"jobs": []}'
        if answer.status:
            raise ServiceError(f"sacct does not answer: {answer.words}")
        return answer.output

    async def take(self, files: Iterable[str]) -> dict[str, bytes]:
        """Small files, as many as are there, by name."""
        names = list(files)
        if not names:
            return {}

        async def archive(names: Sequence[str], limit_s: str) -> ShellAnswer | None:
            given = b"".join(name.encode() + b"\0" for name in names)
            answer = await self.host.run(shell.TAKE, self.root, limit_s, given=given)
            return None if was_killed(answer) else answer

        answer = await self.hanging.look(names, archive)
        found: dict[str, bytes] = {}
        try:
            for name, content in read_small(io.BytesIO(answer.output).read, NOTE_MAX_BYTES):
                found[name] = content
        except BrokenStream as error:
            raise ServiceError(f"{self.host.title} has sent files that cannot be read: {error}") from error
        return found

    async def pieces(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Pieces of files: name, offset, length, all of which must be there."""
        answer = await _read_pieces(self, wanted, _READ_S)
        if len(answer.output) != sum(length for _, _, length in wanted):
            raise ServiceError(f"files on {self.host.title} have changed while they were read")
        found, begin = [], 0
        for _, _, length in wanted:
            found.append(answer.output[begin : begin + length])
            begin += length
        return found

    async def piece(self, name: str, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes of a file from `offset`; b"" where there is nothing (yet)."""
        return (await _read_pieces(self, [(name, offset, limit)], _SHOW_S)).output

    # ------------------------------------------------------------ ending

    async def cancel(self, folder: str, job: str) -> None:
        answer = await self.host.run(shell.CANCEL, self.root, folder, job)
        if answer.complaint and not _ENDED_ALREADY.search(answer.complaint):
            raise ServiceError(f"scancel: {answer.words}")

    async def kill(self, job: str) -> None:
        """SIGTERM to all of a job, and SIGKILL after Slurm's own KillWait."""
        await self.host.run('timeout 15 scancel "$1" </dev/null', job)

    async def remove(self, folder: str, job: str) -> None:
        await self._checked(shell.REMOVE, folder, job)

    async def finish(self, experiment: str, keep: str) -> None:
        await self._checked(shell.FINISH, experiment, keep)

    async def _checked(
        self, script: str, *words: str, given: bytes | Path = b"", limit_s: float = USUAL_S
    ) -> ShellAnswer:
        answer = await self.host.run(script, self.root, *words, given=given, limit_s=limit_s)
        if answer.status:
            raise ServiceError(f"{self.host.title}: {answer.words}")
        return answer


async def _read_pieces(api: SlurmApi, wanted: Sequence[tuple[str, int, int]], limit_s: str) -> ShellAnswer:
    for name, _, _ in wanted:
        api.hanging.check(name)
    given = "".join(f"{offset} {length} {name}\n" for name, offset, length in wanted)
    answer = await api.host.run(shell.PIECES, api.root, limit_s, given=given.encode())
    if was_killed(answer):
        raise ServiceError(no_answer(folder_of(wanted[0][0]), api.host.title))
    return answer


_ENDED_ALREADY = re.compile(r"Invalid job id|already complet|Job/step already|not running", re.IGNORECASE)
_REFUSALS = (
    (r"invalid partition|partition name", "partition", ConfigError),
    (r"account.*limit|job submit limit|violates accounting|QOS.*(limit|max)|AssocMax|AssocGrp|QOSMax", "", NoCapacity),
    (r"invalid account", "account", ConfigError),
    (r"invalid qos", "qos", ConfigError),
    (r"generic resource|gres", "gres", ConfigError),
    (r"feature", "constraint", ConfigError),
    (r"reservation", "reservation", ConfigError),
    (r"time limit|--time", "timeLimit", ConfigError),
    (r"array", "jobArraySize", ConfigError),
    (r"unrecognized option|invalid option|requires an argument", "sbatchLines", ConfigError),
    (r"node configuration is not available|more processors|node count", "", ConfigError),
)


_AWAY_WORDS = re.compile(r"Unable to contact|Connection refused|timed out|Socket timed out", re.IGNORECASE)
_PREFIXES = re.compile(r"\bsbatch: (error: )?|allocation failure: |Batch job submission failed: ")


def refusal(words: str) -> ServiceError | ConfigError:
    """The error for what sbatch says: one that is for good, one that lets the trial wait, or one that may pass."""
    told = _PREFIXES.sub("", words)
    if _AWAY_WORDS.search(words):
        return ServiceError(f"Slurm does not answer: {told}")
    for pattern, place, kind in _REFUSALS:
        if re.search(pattern, words, re.IGNORECASE):
            if kind is NoCapacity:
                return NoCapacity(f"a limit of the account is reached, and jobs have to end first; Slurm says: {told}")
            what = "Slurm refuses it" if place else "no node that is up has what a trial asks for"
            return ConfigError(f"{what}; it says: {told}", Place(field=place or None))
    return ServiceError(f"Slurm does not take the job now: {told}")


def _no_slurm(answer: ShellAnswer, title: str) -> str:
    if "not found" in answer.complaint:
        return (
            f"there is no sbatch on {title}: set login to the login node of the cluster, or slurmPath to the folder of "
            f"Slurm's commands ({answer.words})"
        )
    return f"Slurm cannot be used on {title}: {answer.words}"


def _knows_no_json(complaint: str) -> bool:
    text = complaint.lower()
    return "unrecognized option" in text or "serializer" in text or "json" in text or "data_parser" in text


def _by_id(jobs: Iterable[SlurmJob]) -> dict[str, SlurmJob]:
    return {job.id: job for job in jobs}


def _sizes(text: bytes) -> dict[str, int]:
    found = {}
    for entry in text.split(b"\0"):
        size, _, name = entry.partition(b" ")
        if name and size.isdigit():
            found[name.decode("utf-8", "surrogateescape")] = int(size)
    return found
