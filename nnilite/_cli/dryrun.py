"""`create --dry-run`: everything is checked, and nothing is started on any platform.

What a manager would do first is done here, by the same code, in a folder that is removed again: the tuner and the
assessor are made, in a process of their own, and asked for the first parameters; the code is packed; and the training
service says what it would submit for the first trial. The token of that trial is left out. The platform is asked
whether it would take such trials; where it cannot be reached, that is left out with a word. Options that are set and
have no effect are listed. What is allowed in the search space but is hardly meant is told as warnings.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnilite import codedir
from nnilite._checkpoints.shared_storage import shared_storage
from nnilite._cli import long_work, screen
from nnilite._cli.nnictl import warn
from nnilite._engine.messages import Ask
from nnilite._experiments.address import Address
from nnilite._manager import assembly
from nnilite._running import launch
from nnilite._running.launch import ManagerOptions
from nnilite._space_hints import space_hints
from nnilite._store.writer import open_store
from nnilite._tuner_host.tuner_client import TunerHost
from nnilite.codedir import CodePackage
from nnilite.config.secrets import without_secrets
from nnilite.errors import ServiceError, SpaceError
from nnilite.platform_http import OUTAGE_S, patience_of_at_most
from nnilite.records import Attempt, Json, Trial
from nnilite.space import SearchSpace
from nnilite.units import format_size

if TYPE_CHECKING:
    from nnilite.config import CheckedConfig
    from nnilite.service import TrainingService

HIDDEN = "********"
CHECK_TIMEOUT_S = 60.0
LARGEST = 10
"""How many files of the code package are listed."""


def show(config: CheckedConfig, options: ManagerOptions, *, as_json: bool) -> int:
    """Print what `create` would do. Raises: NniliteError where it would fail."""
    with tempfile.TemporaryDirectory(prefix="nnilite-dry-run-") as folder:
        directory = Path(folder) / launch.new_id()
        for part in ("log", "trials", "code", "checkpoint"):
            (directory / part).mkdir(parents=True)
        parameters, jobs, unchecked = asyncio.run(_rehearse(directory, config, options))
        package = None if all(map(_runs_in_place, jobs.values())) else _packed(directory, config, quiet=as_json)
    jobs = _moved(jobs, folder, str(config.experiment_working_directory))
    code = None if package is None else _package_json(package)
    found = {
        "config": config.json(),
        "code": code,
        "parameters": parameters,
        "jobs": jobs,
        "unchecked": unchecked,
        "withoutEffect": [one._asdict() for one in config.without_effect],
        "warnings": space_warnings(config),
    }
    if as_json:
        screen.show_json(found)
    else:
        _show(config, package, found)
    return 0


def space_warnings(config: CheckedConfig) -> list[str]:
    """What in the search space of a checked config is hardly meant; nothing for a tuner with spaces of its own kind."""
    try:
        space = SearchSpace.parse(config.search_space)
    except SpaceError:
        return []
    tuner = config.tuner.name or ""
    return [f"search space: {hint}" for hint in space_hints(space, tuner=tuner, max_trials=config.max_trial_number)]


def _runs_in_place(described: Json) -> bool:
    """Whether trials run in the user's own folder, so that its code is neither packed nor limited."""
    code = described.get("code") if isinstance(described, dict) else None
    return isinstance(code, dict) and "in_place" in code


def _limit(duration: int | None) -> str | None:
    return "no limit" if duration is None else screen.span(duration)


def _packed(directory: Path, config: CheckedConfig, *, quiet: bool) -> CodePackage:
    limits = codedir.PackageLimits(config.code_limits.max_files, config.code_limits.max_size)
    with long_work.shown("Packing the code", quiet=quiet) as work:
        return codedir.pack(config.trial_code_directory, directory / "code", limits, progress=work.stands_at)


def _moved(value: Json, before: str, after: str) -> Json:
    """A description with the paths that a real experiment would have."""
    if isinstance(value, dict):
        return {key: _moved(part, before, after) for key, part in value.items()}
    if isinstance(value, list):
        return [_moved(part, before, after) for part in value]
    return value.replace(before, after) if isinstance(value, str) else value


async def _rehearse(
    directory: Path, config: CheckedConfig, options: ManagerOptions
) -> tuple[Json, dict[str, Json], str]:
    """The first parameters, what each service would submit for a trial with them, and what could not be checked."""
    scheme = "https" if options.tls_cert else "http"
    prefix = f"/{options.url_prefix}".rstrip("/")
    address = Address(scheme, options.host, options.port or 8080, prefix, options.tls_cert)
    store = open_store(directory, True, time.time())
    try:
        parameters = await _first_parameters(directory, config)
        job = assembly.job_maker(directory, config, store, address)(
            Trial("trial", 0, parameters, parameter_id=0), Attempt("trial", 0)
        )
        job = replace(job, spec={**job.spec, "token": HIDDEN, "storage": without_secrets(job.spec["storage"])})
        service = assembly.make_service(directory, config, address, wake=lambda: None)
        described = service.describe(job)
        unchecked = await _unchecked(service) or await asyncio.to_thread(_storage_unchecked, directory, config)
    finally:
        store.close()
    names = [name for name, _, _ in config.services]
    return parameters, {names[0]: described} if len(names) == 1 else described, unchecked


async def _unchecked(service: TrainingService) -> str:
    """Why the platform could not be asked whether it would take trials; "" if it would. Raises: ConfigError."""
    try:
        with patience_of_at_most(OUTAGE_S):
            await asyncio.wait_for(service.check(), CHECK_TIMEOUT_S)
    except asyncio.TimeoutError:
        return f"{service.name} did not answer within {CHECK_TIMEOUT_S:.0f} s"
    except ServiceError as error:
        return str(error)
    return ""


def _storage_unchecked(directory: Path, config: CheckedConfig) -> str:
    """Why the shared storage could not be asked; "" if it can be used, or there is none. Raises: ConfigError."""
    storage = shared_storage(config, directory.name)
    try:
        if storage is not None:
            storage.look(directory)
    except ServiceError as error:
        return str(error)
    return ""


async def _first_parameters(directory: Path, config: CheckedConfig) -> Json:
    """The parameters that the tuner proposes first. Raises: TunerError, ConfigError."""
    tuner = TunerHost(assembly.tuner_plan(directory, config), _nothing, _nothing)
    try:
        await tuner.open(0)
        found = await tuner.call(Ask((0,), 0))
    finally:
        await tuner.close()
    return found[0] if found else None


async def _nothing(*_: object) -> list[Any]:
    return []


def _package_json(package: CodePackage) -> dict[str, Json]:
    return {
        "directory": str(package.root),
        "hash": package.hash,
        "bytes": package.total_bytes,
        "files": [{"path": file.path, "bytes": file.size} for file in package.files],
        "notes": list(package.notes),
    }


def _show(config: CheckedConfig, package: CodePackage | None, found: dict[str, Any]) -> None:
    screen.show_facts(
        {
            "Experiment": config.experiment_name or "(without a name)",
            "Platform": ", ".join(platform for _, platform, _ in config.services),
            "Trial command": config.trial_command or None,
            "At once": config.trial_concurrency,
            "Trials": config.max_trial_number or "no limit",
            "Time": _limit(config.max_experiment_duration),
            "Tuner": config.tuner.name or config.tuner.class_name,
            "Assessor": (config.assessor.name or config.assessor.class_name) if config.assessor else None,
            "First parameters": screen.parameters(found["parameters"]),
        }
    )
    if package is None:
        print(f"\nCode: trials run in {config.trial_code_directory} itself, nothing is copied.")
    else:
        _show_package(package)
    for name, described in found["jobs"].items():
        print(f"\nWould be submitted to {name} for a trial:")
        screen.show_json(described)
    if config.without_effect:
        print("\nSet without effect:")
        for one in config.without_effect:
            print(f"  {one.sentence}")
    for warning in found["warnings"]:
        warn(warning)
    if found["unchecked"]:
        print()
        warn(f"rights and quotas were not checked: {found['unchecked']}")
    print("\nNothing was started: this was a dry run.")


def _show_package(package: CodePackage) -> None:
    """Print the size of the upload and its largest files."""
    print(f"\nCode of {package.root}: {len(package.files)} files, {format_size(package.total_bytes)}")
    largest = sorted(package.files, key=lambda file: (-file.size, file.path))
    rows = [(file.path, format_size(file.size)) for file in largest[:LARGEST]]
    screen.show_table(("FILE", "SIZE"), rows, "No file is in it.")
    if len(largest) > LARGEST:
        print(f"... and {len(largest) - LARGEST} more")
    for note in package.notes:
        warn(note)
