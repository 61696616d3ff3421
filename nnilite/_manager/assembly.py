"""From an experiment's folder to a manager, ready to run."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nnilite import _keeper, _plugins, codedir
from nnilite._manager import steps as s
from nnilite._manager.app import Machinery, Manager, Publisher, limits_of, new_trial_id
from nnilite._manager.checkpoints import CheckpointRule, Checkpoints
from nnilite._manager.engine import Clock, Engine, Parts
from nnilite._manager.jobs import JobMaker
from nnilite._manager.ledger import StoreLedger
from nnilite._manager.reader import Reader
from nnilite._manager.reading import About, Reading, Standing
from nnilite._manager.rules import Rules
from nnilite._manager.several import Member, Several
from nnilite._manager.store import FILE_NAME, Store
from nnilite._manager.tuner_host import TunerHost, TunerPlan
from nnilite.class_args import default_of
from nnilite.config import ExperimentConfig, TrialSettings, from_dict
from nnilite.errors import PluginError
from nnilite.objectives import configured
from nnilite.records import Json
from nnilite.service import ServiceContext, TrainingService

CHECKPOINTS = "checkpoints"
_LINGER_S = 86400


@dataclass
class Address:
    """Where the manager is reached; known once it listens."""

    scheme: str = "http"
    host: str = "127.0.0.1"
    port: int = 0
    prefix: str = ""
    certificate: Path | None = None

    @property
    def url(self) -> str:
        """As seen from this machine."""
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


@dataclass
class Assembled:
    """A manager and what has to be opened and closed with it."""

    manager: Manager
    engine: Engine
    publisher: Publisher
    tuner: TunerHost
    service: TrainingService
    ledger: StoreLedger
    reader: Reader
    grace_s: float


def load_config(directory: Path, *, paths: bool = True) -> ExperimentConfig:
    """The experiment's own copy of its config. `paths`: its folders must still exist. Raises: ConfigError."""
    raw = json.loads((directory / "config.json").read_text("utf-8"))
    return from_dict(raw, directory).checked(paths=paths)


def assemble(directory: Path, config: ExperimentConfig, store: Store, address: Address, token: str | None) -> Assembled:
    """Put a manager together; nothing runs yet. Raises: NniliteError."""
    maximize = is_maximizing(config.json().get("tuner") or {})
    settings = store.settings(settings_of(config, maximize))
    clock = Clock()
    rules = Rules(settings, store.snapshot(maximize), clock())
    ledger = StoreLedger(store, directory)
    jobs = job_maker(directory, config, store, address)
    late: list[Engine] = []
    service = make_service(directory, config, address, late)
    tuner = TunerHost(tuner_plan(directory, config), ledger.calls, ledger.histories)
    rule = CheckpointRule(config.checkpoint.keep, config.checkpoint.max_size)
    publisher = Publisher(Checkpoints(directory / CHECKPOINTS, rule))
    grace_s, follow = float(config.grace_period), config.callback == "log"
    engine = Engine(Parts(rules, ledger, tuner, service, publisher, jobs, new_trial_id, clock, grace_s, follow))
    late.append(engine)
    about = about_experiment(directory, config, store, maximize)
    reader = Reader(store.path)
    manager = Manager(about, Machinery(engine, jobs, service, ledger, tuner), reader, token)
    publisher.manager = manager
    return Assembled(manager, engine, publisher, tuner, service, ledger, reader, float(config.grace_period))


def assemble_view(directory: Path, config: ExperimentConfig, store: Store, token: str | None) -> Reading:
    """A read-only manager."""
    maximize = is_maximizing(config.json().get("tuner") or {})
    settings = store.settings(settings_of(config, maximize))
    known = store.snapshot(maximize)
    standing = Standing(
        state=known.state,
        reason=known.reason,
        duration_s=known.duration_s,
        ended=json.loads(store.meta("ended") or "null"),
        limits=limits_of(settings),
        counts=known.counts,
        best=known.best,
        next_sequence=known.next_sequence,
    )
    return Reading(about_experiment(directory, config, store, maximize), standing, Reader(store.path), token)


def about_experiment(directory: Path, config: ExperimentConfig, store: Store, maximize: bool) -> About:
    return About(
        id=directory.name,
        directory=directory,
        config=config.json(),
        platforms=tuple(platform for _, platform, _ in config.services),
        created=float(store.meta("created") or 0.0),
        maximize=maximize,
        space=store.last_space() or config.search_space,
        pid=os.getpid(),
    )


def open_store(directory: Path, new: bool, now: float) -> Store:
    """Raises: StoreError."""
    path = directory / FILE_NAME
    if new:
        return Store.create(path, directory.name, now)
    store = Store(path)
    store.open()
    return store


def user_token(directory: Path) -> str:
    """The token that opens the REST interface, made at first use; readable by the user alone."""
    path = directory / "token"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as out:
            out.write(secrets.token_urlsafe(32))
    return path.read_text("ascii").strip()


def settings_of(config: ExperimentConfig, maximize: bool) -> s.Settings:
    """What the rules go by, from the config."""
    return s.Settings(
        concurrency=config.trial_concurrency,
        max_trials=config.max_trial_number,
        max_duration_s=config.max_experiment_duration,
        max_trial_duration_s=config.max_trial_duration,
        retries_lost=config.max_trial_retries,
        retries_failed=config.retry_failed,
        retry_exit_codes=frozenset(config.retry_on),
        max_failed=config.max_failed_trials,
        stop_on_same_error=config.stop_on_same_error,
        silence_s=config.worker_silence,
        maximize=maximize,
        objectives=tuple(configured(config.tuner.class_args)) or ("default",),
        assess=config.assessor is not None,
    )


def is_maximizing(tuner: Mapping[str, Json]) -> bool:
    """Whether larger metrics are better: as the tuner is told, or else by its own default."""
    mode = (tuner.get("classArgs") or {}).get("optimize_mode")
    if mode is None and tuner.get("name"):
        try:
            mode = default_of(_plugins.tuner_class(str(tuner["name"])), "optimize_mode")
        except PluginError:
            return True  # the tuner host will say what is wrong
    return mode != "minimize"


def job_maker(directory: Path, config: ExperimentConfig, store: Store, address: Address) -> JobMaker:
    own = config.settings(config.services[0].name)  # where there are several, each job gets its service's
    return JobMaker(
        experiment=directory.name,
        secret=store.meta("secret") or "",
        command=own.trial_command or config.trial_command,
        platform=config.services[0].platform,
        gpus=own.trial_gpu_number,
        grace_s=config.grace_period,
        max_output_bytes=config.max_output_size,
        linger_s=_LINGER_S,
        checkpoints=directory / CHECKPOINTS,
        report="stdout" if config.callback == "log" else "rest",
        callback=lambda: address.url,
        authority=address.certificate.read_text("ascii") if address.certificate else "",
    )


def tuner_plan(directory: Path, config: ExperimentConfig) -> TunerPlan:
    raw = config.json(secrets=True)
    gpus = config.tuner_gpu_indices
    return TunerPlan(
        tuner=raw["tuner"],
        assessor=raw.get("assessor"),
        space=config.search_space,
        directory=directory,
        timeout_s=config.tuner_timeout,
        gpus=",".join(map(str, gpus or ())),
    )


def make_service(directory: Path, config: ExperimentConfig, address: Address, late: list[Engine]) -> TrainingService:
    """The training service of the experiment; several are wrapped into one."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(late[0].desk.wake)

    limits = codedir.Limits(config.code_limits.max_files, config.code_limits.max_size)
    keeper = _keeper.build(directory / "keeper.pyz")
    members: list[Member] = []
    for name, platform, section in config.services:
        own = config.settings(name)
        code = Path(own.trial_code_directory or config.trial_code_directory)
        context = ServiceContext(
            experiment=directory.name,
            directory=directory,
            code_directory=code,
            package=partial(codedir.pack, code, directory / "code", limits),
            keeper=keeper,
            callback_url=lambda: address.url,
            wake=wake,
            defaults={**config.json(secrets=True), **_given(own)},
        )
        service = _plugins.training_service_class(platform)(name, section, context)
        members.append(Member(service, own.trial_command or config.trial_command, own.trial_gpu_number))
    return members[0].service if len(members) == 1 else Several("several", members, context)


def _given(settings: TrialSettings) -> dict[str, Json]:
    """A service's own settings, under the names of the top level."""
    known = {
        "trialCommand": settings.trial_command,
        "trialGpuNumber": settings.trial_gpu_number,
        "nniManagerIp": settings.nni_manager_ip,
    }
    return {name: value for name, value in known.items() if value is not None}


def located(about: About, address: Address) -> About:
    """With the address where it listens."""
    return replace(about, port=address.port, url=address.url)
