"""What a manager would do first, for `nnictl create --dry-run`: the manager is put together, but submits nothing.

The tuner and the assessor are made, in a process of their own, and asked for the first parameters. The training service
says what it would submit for a trial with them, without the token of that trial, and asks its platform whether it would
take such trials.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nnilite._checkpoints.shared_storage import shared_storage
from nnilite._engine.messages import Ask
from nnilite._experiments.address import Address
from nnilite._manager import assembly
from nnilite._manager.port_choice import placeholder_listener
from nnilite._network.interactive_calls import OUTAGE_S, limit_patience
from nnilite._store.writer import open_store
from nnilite.config import CheckedConfig
from nnilite.config.secrets import without_secrets
from nnilite.errors import ServiceError
from nnilite.records import Attempt, Json, Trial
from nnilite.service import Job, TrainingService
from nnilite.units import HIDDEN

_CHECK_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Preview:
    """The first steps of an experiment."""

    # What the tuner proposes first; None if it proposes nothing.
    parameters: Json
    # What each service would submit for the first trial, by its name.
    jobs: Mapping[str, Json]
    # Why the platform or the storage could not be asked whether it would take trials; "" if it would.
    unchecked: str
    notes: tuple[str, ...] = ()  # what services remark on their machines, and results that no tuner learns from


async def preview(directory: Path, config: CheckedConfig, address: Address) -> Preview:
    """Put a manager together in an empty folder, and return what it would do first. Raises: NniliteError."""
    async with _open_assembled(directory, config, address) as parts:
        await parts.tuner.open(0)
        proposed = await parts.tuner.call(Ask((0,), 0))
        parameters = proposed[0] if proposed else None
        job = _hide_secrets(parts.jobs(Trial("trial", 0, parameters, parameter_id=0), Attempt("trial", 0)))
        described = parts.service.describe(job)
        with placeholder_listener(directory, address):
            unchecked = await _explain_unchecked_platform(parts.service)
        notes = [note for host in parts.service.hosts() if isinstance(note := host.details.get("note"), str)]
    if config.search_from:
        found, sentence = await asyncio.to_thread(assembly.read_known_results, config)
        notes += [] if found.is_as_it_was and found.taken else [sentence]
    unchecked = unchecked or await asyncio.to_thread(_explain_unchecked_storage, directory, config)
    names = [name for name, _, _ in config.services]
    return Preview(parameters, {names[0]: described} if len(names) == 1 else described, unchecked, tuple(notes))


@asynccontextmanager
async def _open_assembled(
    directory: Path, config: CheckedConfig, address: Address
) -> AsyncIterator[assembly.Assembled]:
    """Open a store and assemble the manager on it; close what was opened at the end."""
    with contextlib.closing(open_store(directory, True, time.time())) as store:
        parts = assembly.assemble(directory, config, store, address, "", lambda state, ended: None)
        try:
            yield parts
        finally:
            await parts.tuner.close()
            parts.reader.close()
            parts.store.close()


def _hide_secrets(job: Job) -> Job:
    return replace(job, spec={**job.spec, "token": HIDDEN, "storage": without_secrets(job.spec["storage"])})


async def _explain_unchecked_platform(service: TrainingService) -> str:
    """Return why the platform could not be asked whether it would take trials; "" if it would. Raises: ConfigError."""
    try:
        with limit_patience(OUTAGE_S):
            await asyncio.wait_for(service.check_for_dry_run(), _CHECK_TIMEOUT_S)
    except asyncio.TimeoutError:
        return f"{service.name} did not answer within {_CHECK_TIMEOUT_S:.0f} s"
    except ServiceError as error:
        return str(error)
    return ""


def _explain_unchecked_storage(directory: Path, config: CheckedConfig) -> str:
    """Return why the shared storage could not be asked; "" if it can be used or there is none. Raises: ConfigError."""
    storage = shared_storage(config, directory.name)
    try:
        if storage is not None:
            storage.look(directory)
    except ServiceError as error:
        return str(error)
    return ""
