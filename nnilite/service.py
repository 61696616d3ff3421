"""The plugin API of training services: everything a plugin and the core know of each other.

A training service runs *jobs* on one platform; a job is one attempt of a trial. The service only decides how the keeper
gets started there. The engine calls it from one task, one call at a time, so a service hardly needs locks (one whose
`submits_at_once` is above 1 gets so many submissions at once; see `reports_aside`, too). Only a call that takes longer
than 2 s runs together with others: a slow `submit` with everything but `submit`, a slow `poll` with `submit`, and a
slow `cancel`, `scale` or `remove` with `submit` and `poll`:

    open()                   comes first, and also at a resume, when old jobs may still run
    submit(job) -> handle    returns at once; the handle is JSON and is kept in the store
    poll(handles)            returns facts about jobs, by their handles alone: the service's memory is only a cache
    cancel(handle)           requests the end and returns; poll reports when the job has ended
    close()                  closes connections; jobs keep running

Methods are called on the event loop and must not block. `context.wake()` makes the engine poll now instead of later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nnilite.codedir import CodePackage
from nnilite.foreign_files import TrialFile
from nnilite.records import Host, JobState, Json, KeeperEvent

__all__ = [
    "CHECKPOINTS_STAY",
    "Handle",
    "Host",
    "IgnoredOption",
    "Job",
    "JobSpec",
    "JobState",
    "JobStatus",
    "ServiceContext",
    "TrainingService",
    "TrialFile",
    "callback_is_unused",
]

SPEC_VERSION = 1

T = TypeVar("T")

Handle = Mapping[str, Json]
"""A JSON object with which a service finds its job again after a restart of the manager."""


@dataclass(frozen=True)
class JobStatus:
    """The facts about one job, never a guess. A job that cannot be looked up now is UNKNOWN."""

    state: JobState
    reason: str = ""  # why it waits, or a few words on its end
    exit_code: int | None = None  # negative for a signal
    host: str = ""
    url: str = ""  # the job's own web page, if the platform has one
    started: float | None = None
    ended: float | None = None
    cost: float | None = None  # cost of the job so far, if the platform knows it; else the config's `cost` is used
    image: str = ""  # the container image that it runs, with its digest, if the platform tells it


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """The specification of an attempt for its keeper. A test compares the keeper's own copy of this list with it.

    The service that starts the keeper adds `directory`, the attempt's folder on the worker, by `Job.spec_for`.
    """

    job: str
    experiment: str
    trial: str
    command: str
    attempt: int = 0
    sequence: int = 0
    platform: str = "local"
    # NNI's parameter record, the content of parameter.cfg.
    parameters: Json = None
    token: str = ""
    # The base URL of the manager. Without one, everything stays in the folder.
    callback: str | None = None
    # A file with the base URL, which is read again for each try.
    callback_file: str | None = None
    # The PEM text of the authority of the manager's certificate.
    callback_ca: str | None = None
    # Either "rest" or "stdout".
    report: str = "rest"
    # {"in_place": folder}, {"archive": file} or {"download": hash}. None: the command runs in the directory.
    code: Mapping[str, str] | None = None
    # Variables that are added to the trial's environment; None removes a variable.
    env: Mapping[str, str | None] = field(default_factory=dict)
    # The time from SIGTERM to SIGKILL.
    grace_s: float = 10
    heartbeat_s: float = 10
    # How long the keeper stays after the trial's end to deliver everything.
    linger_s: float = 86400
    # The trial is ended after this time without an answer of the manager.
    orphan_s: float | None = None
    max_duration_s: float | None = None
    # How far the command steps back behind other programs where all processors are busy, up to 19.
    niceness: int = 0
    # The cap of each output file; 0 means none.
    max_output_bytes: int = 0
    # Whether output is also sent as events.
    send_output: bool = False
    checkpoint_dir: str | None = None
    # The experiment's shared storage, for its keepers alone. It may hold credentials.
    storage: Mapping[str, Json] | None = None
    # {"nodes", "processes", "launcher"} of a trial of several processes: see `nnilite._keeper.node_start`, also for
    # what a service adds. None: the command runs once.
    distributed: Mapping[str, Json] | None = None
    # The identity of the run that a restarted job continues; a new run draws its own.
    run: str = ""

    def json(self) -> dict[str, Json]:
        """Return the specification as JSON, without `directory`."""
        return {"version": SPEC_VERSION, **{one.name: getattr(self, one.name) for one in fields(self)}}


LABELS = "_machineLabels"
"""The parameter with which a trial asks for labels: a list of them, or one."""


@dataclass(frozen=True)
class Job:
    """One attempt of a trial that is to be run.

    `spec` is the keeper's specification as JSON: see `JobSpec`. It holds secrets: hand it over in a file of mode 0600,
    on standard input or in a platform's secret, never on a command line. `spec_for` completes it with what only the
    service knows.
    """

    name: str  # nni-<experiment>-<trial>-<attempt>: submitting the same name twice must start it once
    experiment: str
    trial: str
    attempt: int
    sequence: int
    spec: Mapping[str, Json]
    gpus: int | None = None  # None: leave the GPU variables alone; 0: hide all GPUs

    @property
    def report(self) -> str:
        """How its keeper reports: "rest" to the manager, "stdout" by the platform's log, or in its folder."""
        return str(self.spec.get("report") or "rest")

    @property
    def parameters(self) -> Mapping[str, Json]:
        """The trial's parameters by name; {} where they have no names."""
        record = self.spec.get("parameters")
        found = record.get("parameters") if isinstance(record, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    @property
    def labels(self) -> list[str]:
        """The labels that the trial asks of its machine by `LABELS`, for services whose machines have labels."""
        wanted = self.parameters.get(LABELS)
        if isinstance(wanted, str):
            return [wanted]
        return [str(label) for label in wanted] if isinstance(wanted, list) else []

    def spec_for(self, directory: str | Path, **more: Json) -> dict[str, Json]:
        """Return the keeper's whole specification. `directory` is the trial's folder on the worker.

        `more` may set `code` (see the keeper), `env` (added to the trial's environment), and other fields of `JobSpec`.
        """
        env = {**self.spec.get("env", {}), **more.pop("env", {})}
        return {**self.spec, "directory": str(directory), "env": env, **more}


@dataclass(frozen=True)
class ServiceContext:
    """The manager's surroundings that a service may use."""

    experiment: str  # the experiment's id
    directory: Path  # the experiment's folder on the manager's machine, with its trials in `trials/`
    code_directory: Path  # the user's code directory
    package: Callable[[], CodePackage]  # packs the code directory, cached by content; call it in a thread
    keeper: Path  # the keeper zipapp, to be started by any Python >= 3.8
    callback_url: Callable[[], str]  # base URL of the manager's REST interface, as seen from this machine
    wake: Callable[[], None]  # makes the engine poll this service soon; safe from any thread
    defaults: Mapping[str, Json] = field(default_factory=dict)  # experiment-wide settings: searchSpace, ...
    # The shared storage, with credentials, if it has the code package of this hash: what a keeper's `fetch` reads.
    stored_code: Callable[[str], Mapping[str, Json] | None] = lambda package: None

    @property
    def reports_by_log(self) -> bool:
        """Whether new trials report by the logs of their jobs: `callback: log`."""
        return self.defaults.get("callback") == "log"


Settings = Mapping[str, Json]
"""The experiment's settings under their names in the YAML, as in `ServiceContext.defaults`."""


@dataclass(frozen=True)
class IgnoredOption:
    """An option that can be set and has no effect on a platform. A user who sets it is warned before anything starts.

    IgnoredOption("reuseMode", "each trial is a job of its own")
    IgnoredOption("cpus", "nodes counts", "where `nodes` is set", lambda config, _: config.nodes is not None)
    """

    option: str  # as the YAML spells it, in the section or else at the top level: `reuseMode`, `checkpoint.keep`
    why: str  # what happens instead, with the cure if there is one: the end of a sentence
    case: str = ""  # in which case, in words for the reference page; "" if always
    holds: Callable[[Any, Settings], bool] = lambda config, settings: True  # the section and the experiment's settings


def _keeps_all(settings: Settings) -> bool:
    """Return whether no shared storage has the checkpoints, so that the manager cannot delete any of them."""
    storage = settings.get("sharedStorage")
    return not isinstance(storage, Mapping) or "checkpoints" not in storage.get("contents", ["checkpoints"])


CHECKPOINTS_STAY = tuple(
    IgnoredOption(
        f"checkpoint.{name}",
        "checkpoints are on the platform, where the manager cannot delete them; set sharedStorage for that",
        "without `sharedStorage`",
        lambda config, settings: _keeps_all(settings),
    )
    for name in ("keep", "maxSize")
)
"""For services whose trials write checkpoints where the manager cannot delete them."""


def callback_is_unused(why: str = "trials report through the log and need no address") -> IgnoredOption:
    """Return what services declare that need `nniManagerIp` only where trials call the manager."""
    return IgnoredOption(
        "nniManagerIp", why, "with `callback: log`", lambda config, settings: settings.get("callback") == "log"
    )


class TrainingService(ABC):
    """Runs jobs on one platform. One instance per experiment.

    `Config` is a frozen dataclass: its fields, with their types, defaults and units (`nnilite.units`), are the
    service's part of the YAML; its `__post_init__` may raise ConfigError for rules between fields. It is checked
    before anything starts. Everything needed to find a job again is in its handle.
    """

    Config: ClassVar[type]
    """A dataclass. It may have `warnings: tuple[str, ...] = field(default=(), init=False)`: sentences for the user."""
    tells_cost: ClassVar[bool] = False  # whether `JobStatus.cost` is set
    ignores: ClassVar[Sequence[IgnoredOption]] = ()
    """The options of the section and of the experiment that have no effect here: the only place that says so.

    One that always ignores `callback` gets jobs that report to the manager, also in an experiment with `callback: log`.
    """
    reports_aside: bool = False
    """Whether a call of `reports` that takes long may run during all other calls; see `nnilite.services.job_turns`.

    There is not more than one for each job, and none in parallel with `remove` of that job.
    """
    launchers: ClassVar[Sequence[str]] = ()
    """The launchers of `distributed` that work here; none: a trial is one process on one machine."""
    elastic_launchers: ClassVar[Sequence[str]] = ()
    """Those of them whose trials may change their number of nodes here: `nodes: {min: 1, max: 4}`."""
    submits_at_once: ClassVar[int] = 1
    """How many calls of `submit`, for different jobs, may be under way at a time."""

    def __init__(self, name: str, config: Any, context: ServiceContext) -> None:
        self.name = name  # unique within the experiment; the platform's name unless there are several of one
        self.config = config
        self.context = context

    @classmethod
    def honours(cls, option: str) -> bool:
        """Return whether an option has an effect on this platform, at least in some cases."""
        return not any(one.option == option and not one.case for one in cls.ignores)

    def check_open(self, part: T | None) -> T:
        """Return a part that exists only while the service is open. Raises: ServiceError if it does not."""
        from nnilite.errors import ServiceError

        if part is None:
            raise ServiceError(f"{self.name} is not open")
        return part

    @abstractmethod
    async def open(self) -> None:
        """Connect and check access. Raises: ConfigError if it can never work, ServiceError if it cannot work now."""

    @abstractmethod
    async def submit(self, job: Job) -> Handle:
        """Start a job, once for each `job.name`.

        Raises: NoCapacity with the reason to wait, if the platform does not have the job: also not from an earlier
        call whose answer was lost. ServiceError if it may have it; then the call is made again. ConfigError if it does
        not have it and never will: the trial fails with this reason, or goes to another service of the experiment.
        JobRefused if the platform says that: only the first trial fails by it. If the service has taken another before,
        the platform has changed, and trials wait with the reason. So they do after NotFound: what they go to is gone.
        """

    @abstractmethod
    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        """Return the status of each job, in the order of the handles.

        Raises: ServiceError if none can be looked up now.
        """

    @abstractmethod
    async def cancel(self, handle: Handle) -> None:
        """Request the job's end: SIGTERM to its process group, SIGKILL after the grace. Harmless if it has ended."""

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        """Return events of a job that the service can read itself, if the keeper cannot deliver them (any more).

        It is called after a job has ended without its keeper's report, and regularly for `callback: log`, unless
        the service ignores that. It may repeat events: duplicates are dropped by number.
        """
        return ()

    async def logs(self, handle: Handle, stream: str, offset: int, limit: int) -> bytes:
        """Return up to `limit` bytes of "stdout" or "stderr" from `offset`, if the service can read them."""
        return b""

    def folder(self, handle: Handle) -> Path | None:
        """Return the trial's folder if it lies on the manager's machine, or None. Nothing is read to find it.

        If it is the one in the experiment's directory, there is nothing to list or to copy.
        """
        return None

    async def fetch(self, handle: Handle, target: Path) -> None:
        """Copy the trial's folder to `target`, by `nnilite.foreign_files`: the trial may have put anything there.

        Raises: NotFound if it is gone, ServiceError.
        """

    async def files(self, handle: Handle) -> Sequence[TrialFile] | None:
        """List the trial's folder where it is, without copying it; at most `foreign_files.LISTED_MAX` entries.

        None: the service cannot; then what there is of the trial is copied by `fetch`, if it is not much. The manager
        checks what is listed. Raises: NotFound if the folder is gone, ServiceError.
        """
        return None

    async def fetch_file(self, handle: Handle, path: str, target: Path, most_bytes: int) -> None:
        """Copy the file `path` of the trial's folder to the same path below `target`, by `nnilite.foreign_files`.

        Called only where `files` lists. Raises: NotFound if there is no such file, ServiceError, also if it has more
        than `most_bytes`.
        """
        from nnilite.errors import NotFound

        raise NotFound(f"{self.name} copies no single files")

    async def scale(self, handle: Handle, workers: int) -> None:
        """Change the number of workers of an elastic job while it runs. The platform keeps it, for this job only.

        Raises: Conflict if jobs are not elastic, or do not allow that number; NotFound if the job is gone.
        """
        from nnilite.errors import Conflict

        raise Conflict(f"{self.name} jobs have a fixed number of workers")

    async def take_node(self, handle: Handle) -> None:
        """Take one node of an elastic trial away, as a spot node is, for drills. The trial may grow again.

        Raises: Conflict if trials have a fixed number of nodes, or this one has no node to spare now.
        """
        from nnilite.errors import Conflict

        raise Conflict(f"trials of {self.name} have a fixed number of nodes")

    def share_slots(self, limit: int | None, priority: int | None) -> None:
        """Accept other terms for the slots that experiments share (`nnilite.services.slots`) than the config's.

        `limit`: how many trials of all experiments run at once, as `maxSlots`. What is None is as the config says. It
        is also called before `open`, and on the event loop between other calls, so it only notes the terms: they hold
        for each trial that waits and for all to come, and end nothing that runs. Raises: ConfigError if they can have
        no effect here; then nothing has changed.
        """
        from nnilite.errors import ConfigError

        cure = "trialConcurrency limits how many run at once"
        raise ConfigError(f"trials of {self.name} share no slots, so maxSlots and priority have no effect; {cure}")

    def describe(self, job: Job) -> Json:
        """Return what `submit` would send, with secrets hidden, for `nnictl create --dry-run`.

        No network may be used.
        """
        return {"name": job.name}

    async def check(self) -> None:
        """Ask the platform whether trials could run: rights, operators, quotas; for `nnictl doctor` and dry runs.

        Called on a service that has not been opened, and changes nothing. Something listens at `context.callback_url`
        meanwhile, as the manager would. What `open` refuses is refused here, as far as that is known without a manager.
        Raises: ConfigError if it can never work, ServiceError if that is unknown now.
        """

    async def check_for_dry_run(self) -> None:
        """Check the same for `create --dry-run`, which may run where trials will not, and without a login.

        Raises: as `check`; ServiceError with the reason for what is left out.
        """
        await self.check()

    def hosts(self) -> list[Host]:
        """Return the machines of this service and their health, as last seen."""
        return []

    async def remove(self, handle: Handle) -> None:
        """Free what an ended job still holds on the platform (a Secret, a queue entry, a folder).

        It is called again, also by the next manager, until it returns without an error, so it must be harmless if
        everything is free already. Raises: ServiceError if it cannot be done now.
        """

    async def close(self) -> None:
        """Close connections. Running jobs continue. Raises: ServiceError that names what should be gone and is not."""
