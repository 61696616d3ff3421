"""Makes a manager that is ready to run from an experiment's folder."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from nnilite import codedir
from nnilite._checkpoints.checkpoint_folders import CHECKPOINTS, CheckpointFolders
from nnilite._checkpoints.checkpoint_rule import CheckpointPlace, CheckpointRule
from nnilite._checkpoints.checkpoint_tidying import CheckpointTidier, make_after_tidying
from nnilite._checkpoints.shared_storage import shared_storage
from nnilite._engine import messages
from nnilite._engine.engine import Clock, Engine, EngineParts
from nnilite._engine.hybrid import HybridService, Member
from nnilite._engine.jobs import JobMaker
from nnilite._engine.placement import Placement, Share
from nnilite._engine.rules import Rules
from nnilite._engine.service_caller import WakeSignal
from nnilite._experiments.address import Address
from nnilite._experiments.file_guard import KeeperFile
from nnilite._manager import known_results, search_from
from nnilite._manager.manager import Manager
from nnilite._manager.manager_parts import ManagerParts, Publisher, make_trial_id
from nnilite._manager.tuner_copy import TunerCopy, hides_modules
from nnilite._plugins import lookup
from nnilite._store.async_store import AsyncStore
from nnilite._store.notices import TEACHES_NOTHING
from nnilite._store.reader import Reader
from nnilite._store.resume_reader import ResumeReader
from nnilite._store.settings_of_config import is_maximizing, make_settings
from nnilite._store.writer import Store
from nnilite._tuner_host.tuner_client import TunerHost, TunerPlan
from nnilite._tuner_host.tuner_process import TunerProcess
from nnilite._views.experiment_view import collect_facts
from nnilite.config import CheckedConfig, ServiceShare
from nnilite.errors import NniliteError
from nnilite.records import CallKind, ExperimentState, Json, Trial
from nnilite.service import ServiceContext, TrainingService
from nnilite.tuner import Call

log = logging.getLogger(__name__)

KEEPER = "keeper.pyz"
_LINGER_S = 86400
_MOST_GPUS = 64  # most GPUs of a node, with `processesPerNode: gpu`


@dataclass
class Assembled:
    """A manager and the parts that have to be opened and closed with it."""

    manager: Manager
    engine: Engine
    publisher: Publisher
    tidiers: Sequence[CheckpointTidier]
    tuner: TunerHost
    jobs: JobMaker
    service: TrainingService
    store: AsyncStore
    reader: Reader
    keeper: KeeperFile


def take_results(config: CheckedConfig, store: Store) -> None:
    """Give a new experiment what its tuner is to learn first. Raises: NniliteError if a source cannot be read."""
    if not config.search_from:
        return
    results, sentence = read_known_results(config)
    if results.taken:
        store.write([messages.SaveCall(1, Call(CallKind.IMPORT, value=results.taken))])
    log.log(logging.INFO if results.is_as_it_was and results.taken else logging.WARNING, "%s", sentence)
    store.add_remarks([sentence])


def read_known_results(config: CheckedConfig) -> tuple[known_results.FittedResults, str]:
    """Return what the tuner learns from `searchFrom`, and the sentence on it. Raises: NniliteError."""
    space = None if config.tuner.class_name else config.search_space
    found = known_results.fit(search_from.collect(config.search_from), space)
    teaches = "searchFrom" if found.taken else TEACHES_NOTHING
    return found, f"{teaches}: of {', '.join(config.search_from)}, {found.sentence}"


def add_first_trials(config: CheckedConfig, store: Store) -> None:
    """Let a new experiment begin with the trials of `firstTrials`, as if a person had added them."""
    trials = [
        Trial(
            id=make_trial_id(),
            sequence=number,
            parameters=parameters,
            source="customized",
            reason="waiting to be submitted",
            created=time.time(),
        )
        for number, parameters in enumerate(config.first_trials)
    ]
    store.write([messages.SaveTrial(trial) for trial in trials])


def prepare_storage(directory: Path, config: CheckedConfig, new: bool) -> None:
    """Check the shared storage. Raises: NniliteError if it cannot be used, for a new experiment; else that is logged.

    Blocks for a minute at most.
    """
    try:
        storage = shared_storage(config, directory.name)
        if storage is not None:
            storage.prepare(directory)
    except NniliteError as error:
        if new:
            raise
        log.warning("%s", error)


def assemble(
    directory: Path,
    config: CheckedConfig,
    store: Store,
    address: Address,
    token: str,
    state_changed: Callable[[ExperimentState, float | None], None],
    packing: codedir.Progress | None = None,
) -> Assembled:
    """Put a manager together; nothing runs yet. `state_changed` is called with each committed state and its end time.

    `packing` is called in another thread, with how much of the code is packed. Raises: NniliteError.
    """
    maximize = is_maximizing(config.json().get("tuner") or {})
    settings = store.resume_reader.settings(make_settings(config, maximize))
    clock = Clock()
    store.claim()
    rules = Rules(settings, store.resume_reader.snapshot(maximize), clock())
    async_store = AsyncStore(store, directory)
    jobs = make_job_maker(directory, config, store, address)
    if config.record_provenance:
        jobs = replace(jobs, env=rules.workers.question)
    keeper = make_keeper_file(directory / KEEPER, config)
    wake = WakeSignal()
    service = make_service(directory, config, address, wake.ring, packing)
    tuner = TunerHost(make_tuner_plan(directory, config), async_store.calls, async_store.histories)
    tidiers = make_checkpoint_tidiers(directory, config, store.resume_reader, rules)
    publisher = Publisher(rules, tidiers, state_changed)
    engine = Engine(
        EngineParts(
            rules=rules,
            store=async_store,
            tuner=tuner,
            service=service,
            watcher=publisher,
            job=make_after_tidying(tidiers, keeper.before(jobs)),
            new_id=make_trial_id,
            clock=clock,
            wake=wake,
            grace_s=config.grace_period,
            follow=list_services_by_log(config),
            output_cap_bytes=config.max_output_size,
            ranks=count_ranks(config),
        )
    )
    about = collect_facts(directory, config, store.resume_reader, maximize)
    reader = Reader(store.path)
    manager = Manager(about, ManagerParts(engine, jobs, service, async_store, tuner, publisher), reader, token)
    return Assembled(
        manager=manager,
        engine=engine,
        publisher=publisher,
        tidiers=tidiers,
        tuner=tuner,
        jobs=jobs,
        service=service,
        store=async_store,
        reader=reader,
        keeper=keeper,
    )


def make_checkpoint_tidiers(
    directory: Path, config: CheckedConfig, resume_reader: ResumeReader, rules: Rules
) -> Sequence[CheckpointTidier]:
    """Return what tidies up the checkpoints; nothing if all are kept."""
    rule = CheckpointRule(config.checkpoint.keep, config.checkpoint.max_size)
    if rule.keeps_everything:
        return ()
    places: list[CheckpointPlace] = [CheckpointFolders(directory / CHECKPOINTS)]
    storage = shared_storage(config, directory.name)
    stored = None if storage is None else storage.checkpoints(directory)
    if stored is not None:
        places.append(stored)
    return [CheckpointTidier(rules, rule, place, resume_reader.ended_trials()) for place in places]


def make_job_maker(directory: Path, config: CheckedConfig, store: Store, address: Address) -> JobMaker:
    # With several services, the hybrid service gives each job the settings of its own service.
    own = config.settings(config.services[0].name)
    storage = shared_storage(config, directory.name)
    return JobMaker(
        experiment=directory.name,
        secret=store.secret(),
        command=own.trial_command,
        platform=config.services[0].platform,
        gpus=own.gpus,
        grace_s=config.grace_period,
        max_output_bytes=config.max_output_size,
        linger_s=_LINGER_S,
        checkpoints=directory / CHECKPOINTS,
        report="stdout" if config.services[0].name in list_services_by_log(config) else "rest",
        callback=lambda: address.url,
        authority=address.certificate.read_text("ascii") if address.certificate else "",
        storage=lambda: None if storage is None else storage.entry,
        distributed=nodes_of(config),
    )


def make_keeper_file(path: Path, config: CheckedConfig) -> KeeperFile:
    """Return the keeper with what the experiment's trials need, and no more: it travels to each worker."""
    preloads = any(getattr(service.config, "preload", ()) for service in config.services)
    stores = config.shared_storage is not None or any(
        getattr(service.config, "brings_storage", False) for service in config.services
    )
    return KeeperFile(path, with_storage=stores, with_nodes=config.distributed is not None, with_preload=preloads)


def nodes_of(config: CheckedConfig) -> Mapping[str, Json] | None:
    """Return the nodes of a trial for its specification; None if trials are one process."""
    given = config.distributed
    if given is None:
        return None
    settings: dict[str, Json] = {"processes": given.processes_per_node, "launcher": given.launcher}
    counts = given.counts
    elastic = {"min": counts.fewest, "max": counts.most} if counts.is_elastic else {}
    return {"nodes": counts.most, **elastic, **settings}


def count_ranks(config: CheckedConfig) -> int:
    """Return how many processes a distributed trial has, at most; 0 if trials are one process."""
    given = config.distributed
    if given is None:
        return 0
    each = given.processes_per_node
    return given.counts.most * (each if isinstance(each, int) else _MOST_GPUS)


def list_services_by_log(config: CheckedConfig) -> frozenset[str]:
    """Return the names of the services whose trials report by their logs: `callback: log`, where it has an effect."""
    if config.callback != "log":
        return frozenset()
    classes = {name: lookup.training_service_class(platform) for name, platform, _ in config.services}
    return frozenset(name for name, cls in classes.items() if cls.honours("callback"))


def make_tuner_plan(directory: Path, config: CheckedConfig) -> TunerPlan:
    raw = config.json(secrets=True)
    gpus = config.tuner_gpu_indices
    return TunerPlan(
        tuner=raw["tuner"],
        assessor=raw.get("assessor"),
        space=config.search_space,
        directory=directory,
        timeout_s=config.tuner_timeout,
        gpus=",".join(map(str, gpus or ())),
        constraints=tuple(config.constraints),
        result_constraints=tuple(config.result_constraints),
    )


async def start_tuner_ahead(directory: Path, config: CheckedConfig, copy: TunerCopy | None) -> TunerProcess | None:
    """Start a process for the tuner, or take the copy that was made for it.

    Return None if it cannot be started now: the tuner host tries again, and says why.
    """
    algorithms = [one for one in (config.tuner, config.assessor) if one is not None]
    if copy is not None and hides_modules([str(one.code_directory) for one in algorithms if one.code_directory]):
        copy.end()
        copy = None
    try:
        return await (TunerProcess.start(directory) if copy is None else copy.connect())
    except OSError as error:
        log.debug("the tuner's process is started later: %s", error)
        return None


def make_service(
    directory: Path,
    config: CheckedConfig,
    address: Address,
    wake: Callable[[], None],
    packing: codedir.Progress | None = None,
) -> TrainingService:
    """Make the training service of the experiment; several are wrapped into a hybrid service."""
    by_log = list_services_by_log(config)
    contexts = _make_contexts(directory, config, address, wake, packing, by_log)
    members: list[Member] = []
    for name, platform, section in config.services:
        own = config.settings(name)
        service = lookup.training_service_class(platform)(name, section, contexts[name])
        report = "stdout" if name in by_log else "rest"
        members.append(Member(service, own.trial_command, own.gpus, _share(config.share(name)), report))
    if len(members) == 1 and members[0].share.max_trials is None:
        return members[0].service
    # What differs between the members' contexts is of no use to the hybrid service itself.
    return HybridService("hybrid", members, contexts[config.services[0].name], Placement(config.placement))


def _make_contexts(
    directory: Path,
    config: CheckedConfig,
    address: Address,
    wake: Callable[[], None],
    packing: codedir.Progress | None,
    by_log: Collection[str],
) -> dict[str, ServiceContext]:
    """Return what each training service gets of the experiment, by the service's name."""
    limits = codedir.PackageLimits(config.code_limits.max_files, config.code_limits.max_size)
    storage = shared_storage(config, directory.name)
    contexts: dict[str, ServiceContext] = {}
    known_notes: set[str] = set()
    for name, _, _ in config.services:
        own = config.settings(name)
        code = own.trial_code_directory
        pack = partial(_pack, known_notes, code, directory / "code", limits, progress=packing)
        contexts[name] = ServiceContext(
            experiment=directory.name,
            directory=directory,
            code_directory=code,
            package=pack if storage is None else storage.with_code(pack),
            keeper=directory / KEEPER,
            callback_url=lambda: address.url,
            wake=wake,
            defaults={**config.json(secrets=True), **own.json(), "callback": "log" if name in by_log else "rest"},
            stored_code=(lambda package: None) if storage is None else storage.stored_code,
        )
    return contexts


def _pack(known_notes: set[str], *of: Any, progress: codedir.Progress | None) -> codedir.CodePackage:
    """Pack the code, and log what trials will not find of it, once. Raises: CodeDirError."""
    package = codedir.pack(*of, progress=progress)
    for note in package.notes:
        if note not in known_notes:
            log.warning("trial code: %s", note)
    known_notes.update(package.notes)
    return package


def _share(given: ServiceShare) -> Share:
    return Share(given.max_trials, 1.0 if given.weight is None else given.weight, given.cost)
