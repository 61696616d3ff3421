"""How the jobs of a platform get keeper and code: with the job, from a storage that both sides mount, or the manager.

    def delivered(report: str, callback: str) -> Delivery:                          in a thread
        source = code_source(config.code_from, storage is not None, report)
        return deliver(context, source, report, storage, callback)

    deliveries = DeliveryCache(delivered, job_callback_url)                            of the service
    delivery = await deliveries.prepare(job)
    instructions = delivery.instructions(job, folder)
    variables = delivery.variables(instructions)                                    of the job

`storage` is a `MountedStorage`, which also reads what a trial has left there.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nnilite._keeper import proof
from nnilite.errors import ConfigError, Place, ServiceError, describe_os_error
from nnilite.foreign_files import TrialFile, put_file, size_below
from nnilite.records import Json
from nnilite.service import Job, ServiceContext
from nnilite.services.bootstrap import Instructions, Supply, environment, file_digest, for_one_job, pack_tightly
from nnilite.services.keeper_folder import copy_attempt, copy_attempt_file, list_attempt
from nnilite.units import HIDDEN

__all__ = [
    "CODE_VARIABLE",
    "KEEPER_VARIABLE",
    "START_VARIABLE",
    "CodeSource",
    "Delivery",
    "DeliveryCache",
    "MountedStorage",
    "code_source",
    "deliver",
    "hidden",
    "keeper_spec",
    "sample_job",
    "variable_names",
]

CodeSource = Literal["manager", "storage", "job"]
START_VARIABLE = "NNILITE_START"
KEEPER_VARIABLE = "NNILITE_KEEPER"
CODE_VARIABLE = "NNILITE_CODE"
_LEFT_OUT = (".boot-*",)


@dataclass(frozen=True)
class MountedStorage:
    """A storage that is mounted on the manager's machine and in jobs. Its methods block."""

    here: Path
    there: str
    experiment: str

    @property
    def code_folder(self) -> str:
        """The folder for keeper and code, within the storage."""
        return f"nni/{self.experiment}/code"

    def put(self, name: str, source: Path) -> str:
        """Copy a file whose name identifies its content, unless it is there.

        Return its path in jobs. Raises: ServiceError.
        """
        try:
            known = size_below(self.here, f"{self.code_folder}/{name}")
        except OSError:  # the attempt to write says what is wrong
            known = None
        if known != source.stat().st_size:
            self._write(name, source)
        return f"{self.there}/{self.code_folder}/{name}"

    def write(self, name: str, text: str) -> str:
        """Write a small file. Return its path in jobs. Raises: ServiceError."""
        self._write(name, text.encode("utf-8"))
        return f"{self.there}/{self.code_folder}/{name}"

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name. Raises: ServiceError."""
        try:
            return size_below(self.here, f"{self.code_folder}/{name}") is not None
        except OSError as error:
            folder = self.here / self.code_folder
            raise ServiceError(f"cannot read the storage at {folder}: {describe_os_error(error)}") from error

    def _write(self, name: str, content: Path | bytes) -> None:
        try:
            put_file(self.here, f"{self.code_folder}/{name}", content)
        except OSError as error:
            folder = self.here / self.code_folder
            raise ServiceError(f"cannot write to the storage at {folder}: {describe_os_error(error)}") from error

    def work_folder(self, job: Job) -> str:
        """Return where a job writes, as jobs see it."""
        return f"{self.there}/nni/{job.experiment}/{job.trial}/{job.attempt}"

    def attempt(self, job: str) -> Path:
        """Return the folder of an attempt, by the name of its job."""
        trial, _, attempt = job.removeprefix(f"nni-{self.experiment}-").rpartition("-")
        return self.here / "nni" / self.experiment / trial / attempt

    def fetch(self, job: str, target: Path) -> None:
        """Copy the folder of an attempt. Raises: NotFound, ServiceError."""
        copy_attempt(self.attempt(job), target, *_LEFT_OUT)

    def files(self, job: str) -> Sequence[TrialFile]:
        """List the folder of an attempt. Raises: NotFound, ServiceError."""
        return list_attempt(self.attempt(job), *_LEFT_OUT)

    def fetch_file(self, job: str, path: str, target: Path, most_bytes: int) -> None:
        """Copy one file of an attempt. Raises: NotFound, ServiceError."""
        copy_attempt_file(self.attempt(job), path, target, most_bytes)


@dataclass(frozen=True)
class Delivery:
    """Keeper, code and the manager's address for the jobs of one experiment."""

    keeper: Supply
    keeper_sha256: str
    code: Supply | None
    """None: the keeper fetches it from the manager."""
    code_hash: str
    callback: str = ""
    callback_file: str | None = None
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The contents that travel within the job, by the variables that hold them."""

    def spec(self, job: Job, folder: str, **more: Json) -> dict[str, Json]:
        """Return the keeper's specification; see `keeper_spec`."""
        if self.code is None:
            more["code"] = {"download": self.code_hash}
        if self.callback_file:
            more["callback_file"] = self.callback_file
        return keeper_spec(job, folder, self.callback, **more)

    def instructions(self, job: Job, folder: str, **more: Any) -> Instructions:
        """Return the job's instructions. `more` are other fields of `Instructions`."""
        spec = more.pop("spec", None) or self.spec(job, folder)
        return Instructions(spec, self.keeper, self.keeper_sha256, self.code, self.code_hash, **more)

    def variables(self, instructions: Instructions) -> dict[str, str]:
        """Return the environment variables of a job with all that it gets. They hold the trial's token."""
        found = dict(environment(START_VARIABLE, instructions.packed()))
        for name, content in self.contents.items():
            found.update(environment(name, content))
        return found


class DeliveryCache:
    """The deliveries of an experiment, by the way in which its jobs report. Each is made when a job first needs it.

    `deliver` blocks; it is given how jobs report, and the address from `job_callback_url`, "" for jobs that report by
    their logs. An address that was found once is kept.
    """

    def __init__(self, deliver: Callable[[str, str], Delivery], job_callback_url: Callable[[], Awaitable[str]]) -> None:
        self._deliver = deliver
        self._job_callback_url = job_callback_url
        self._made: dict[str, Delivery] = {}

    async def prepare(self, job: Job) -> Delivery:
        """Return the delivery for a job. Raises: what `deliver` and `job_callback_url` raise."""
        report = job.report
        if report not in self._made:
            callback = await self._job_callback_url() if report == "rest" else ""
            self._made[report] = await asyncio.to_thread(self._deliver, report, callback)
        return self._made[report]

    def forget(self) -> None:
        """Make the deliveries again, as for the next manager, whose address may differ."""
        self._made.clear()


def keeper_spec(job: Job, folder: str, callback: str, **more: Json) -> dict[str, Json]:
    """Return the specification for the keeper of a job that writes to `folder`; what the trial prints is sent along.

    It holds the trial's token only if the trial calls the manager. Nodes have a secret of their own without it.
    """
    given: dict[str, Json] = {"callback": callback or None, "send_output": True}
    if job.report == "stdout":
        given["token"] = ""
        if distributed := job.spec.get("distributed"):
            given["distributed"] = {**distributed, "secret": proof.code(str(job.spec["token"]), "nodes", job.name)}
    if job.gpus == 0:
        given["env"] = {"CUDA_VISIBLE_DEVICES": ""}
    return job.spec_for(folder, **{**given, **more})


def code_source(given: CodeSource | None, has_storage: bool, report: Json) -> CodeSource:
    """Return where jobs get the code: as the config says; else the storage, if there is one, else by the way back."""
    if given is not None:
        return given
    if has_storage:
        return "storage"
    return "job" if report == "stdout" else "manager"


def sample_job(context: ServiceContext, gpus: int | None = None) -> Job:
    """Make a job such as will come, without parameters: what is too large with it is too large for each trial."""
    report = "stdout" if context.reports_by_log else "rest"
    name = f"nni-{context.experiment}-sample-0"
    return Job(name, context.experiment, "sample", 0, 0, {"report": report, "token": "0" * 43}, gpus)


def variable_names(source: CodeSource) -> list[str]:
    """Return the variables that a job gets, for a look at it before anything is sent."""
    more = {"storage": [], "manager": [KEEPER_VARIABLE], "job": [KEEPER_VARIABLE, CODE_VARIABLE]}
    return [START_VARIABLE, *more[source]]


def deliver(
    context: ServiceContext, source: CodeSource, report: Json, storage: MountedStorage | None, callback: str
) -> Delivery:
    """Put keeper and code where jobs will look for them. Blocks. Raises: ConfigError, ServiceError, CodeDirError.

    A keeper that travels within the job is as small as it can be: the platforms that need this count each byte.
    """
    if source == "manager" and report == "stdout":
        raise ConfigError("must not be manager where callback is log: jobs cannot reach it", Place(field="codeFrom"))
    package = context.package()
    if source == "storage" and storage is not None:
        digest = file_digest(context.keeper)
        keeper = Supply(file=storage.put(f"keeper-{digest}.pyz", context.keeper))
        code = Supply(file=storage.put(f"{package.hash}.tar.gz", package.archive))
        return Delivery(keeper, digest, code, package.hash, callback)
    packed, digest = _pack_keeper_of_one_job(context.keeper.read_bytes())
    keeper, contents = Supply(variable=KEEPER_VARIABLE, packed=True), {KEEPER_VARIABLE: packed}
    if source != "job":
        return Delivery(keeper, digest, None, package.hash, callback, contents=contents)
    contents[CODE_VARIABLE] = package.archive.read_bytes()
    return Delivery(keeper, digest, Supply(variable=CODE_VARIABLE), package.hash, callback, contents=contents)


@functools.lru_cache(maxsize=1)  # services of one manager share a keeper
def _pack_keeper_of_one_job(keeper: bytes) -> tuple[bytes, str]:
    """Return the keeper as jobs get it, and its digest once they have unpacked it."""
    own = for_one_job(keeper)
    return pack_tightly(own), hashlib.sha256(own).hexdigest()


def hidden(names: Iterable[str]) -> dict[str, str]:
    """Return variables without their contents."""
    return dict.fromkeys(names, HIDDEN)


Deliveries = DeliveryCache
"""The old name, which goes with version 0.2."""
