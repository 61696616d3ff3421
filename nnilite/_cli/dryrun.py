"""`create --dry-run`: everything is checked, and nothing is started on any platform.

A manager is put together in a folder that is removed again, and says what it would do first (`_manager.preview`); the
code is packed. Where the platform cannot be reached to ask whether it would take trials, a warning says so. Options
that are set and have no effect are listed, as is what is allowed in the search space but looks like a mistake.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnilite import codedir
from nnilite._cli import progress_line, screen
from nnilite._cli.nnictl import warn
from nnilite._experiments.address import Address
from nnilite._manager.preview import preview
from nnilite._running import launch
from nnilite._running.launch import ManagerOptions
from nnilite.codedir import CodePackage
from nnilite.errors import ConfigError, SpaceError
from nnilite.records import Json
from nnilite.space import SearchSpace
from nnilite.space.space_hints import space_hints
from nnilite.units import format_size

if TYPE_CHECKING:
    from nnilite.config import CheckedConfig

LARGEST = 10
"""How many files of the code package are listed."""


def show(config: CheckedConfig, options: ManagerOptions, *, as_json: bool) -> int:
    """Print what `create` would do. Raises: NniliteError where it would fail."""
    with tempfile.TemporaryDirectory(prefix="nnilite-dry-run-") as folder:
        directory = Path(folder) / launch.new_id()
        for part in ("log", "trials", "code", "checkpoint"):
            (directory / part).mkdir(parents=True)
        try:
            first = asyncio.run(preview(directory, config, _address(options)))
        except ConfigError as error:
            raise config.located(error) from error
        # Where trials run in the user's own folder, its size does not matter, and listing it may take minutes.
        in_place = all(map(_runs_in_place, first.jobs.values()))
        package = None if in_place else _packed(directory, config, quiet=as_json)
    jobs = _moved(first.jobs, folder, str(config.experiment_working_directory))
    code = None if package is None else _describe_package(package)
    notes = _new(list(map(config.spell, first.notes)), config.warnings)
    found = {
        "config": config.json(),
        "code": code,
        "parameters": first.parameters,
        "jobs": jobs,
        "unchecked": config.spell(first.unchecked),
        "withoutEffect": [one._asdict() for one in config.without_effect],
        "warnings": [*_warnings(config), *find_space_warnings(config), *notes],
    }
    if as_json:
        screen.show_json(found)
    else:
        _show(config, package, found)
    return 0


def _warnings(config: CheckedConfig) -> list[str]:
    """Return the config's warnings, but for those on fields without effect, which are listed apart."""
    listed = {one.sentence for one in config.without_effect}
    return [warning for warning in config.warnings if warning not in listed]


def find_space_warnings(config: CheckedConfig) -> list[str]:
    """Return what in a checked config's search space looks like a mistake; nothing for a tuner's own kind of space."""
    try:
        space = SearchSpace.parse(config.search_space)
    except SpaceError:
        return []
    tuner = config.tuner.name or ""
    return [f"search space: {hint}" for hint in space_hints(space, tuner=tuner, max_trials=config.max_trial_number)]


def _new(notes: Sequence[str], warnings: Sequence[str]) -> list[str]:
    """Return the notes that no warning has said already."""
    return [note for note in notes if not any(warning.startswith(note) for warning in warnings)]


def _runs_in_place(described: Json) -> bool:
    """Return whether trials run in the user's own folder, so that its code is neither packed nor limited."""
    code = described.get("code") if isinstance(described, dict) else None
    return isinstance(code, dict) and "in_place" in code


def _limit(duration: int | None) -> str | None:
    return "no limit" if duration is None else screen.span(duration)


def _packed(directory: Path, config: CheckedConfig, *, quiet: bool) -> CodePackage:
    limits = codedir.PackageLimits(config.code_limits.max_files, config.code_limits.max_size)
    with progress_line.shown("Packing the code", quiet=quiet) as work:
        return codedir.pack(config.trial_code_directory, directory / "code", limits, progress=work.show_at)


def _moved(value: Json, before: str, after: str) -> Json:
    """Return a description with the paths that a real experiment would have."""
    if isinstance(value, dict):
        return {key: _moved(part, before, after) for key, part in value.items()}
    if isinstance(value, list):
        return [_moved(part, before, after) for part in value]
    return value.replace(before, after) if isinstance(value, str) else value


def _address(options: ManagerOptions) -> Address:
    """Return the address at which a manager with these options would listen."""
    scheme = "https" if options.tls_cert else "http"
    prefix = f"/{options.url_prefix}".rstrip("/")
    return Address(scheme, options.host, options.port or 8080, prefix, options.tls_cert)


def _describe_package(package: CodePackage) -> dict[str, Json]:
    return {
        "directory": str(package.root),
        "hash": package.hash,
        "bytes": package.total_bytes,
        "files": [{"path": file.path, "bytes": file.size} for file in package.files],
        "notes": list(package.notes),
    }


def _show(config: CheckedConfig, package: CodePackage | None, outcome: dict[str, Any]) -> None:
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
            "First parameters": screen.parameters(outcome["parameters"]),
        }
    )
    if package is None:
        print(f"\nCode: trials run in {config.trial_code_directory} itself, nothing is copied.")
    else:
        _show_package(package)
    for name, described in outcome["jobs"].items():
        print(f"\nWould be submitted to {name} for a trial:")
        screen.show_json(described)
    if config.without_effect:
        print("\nSet without effect:")
        for one in config.without_effect:
            print(f"  {one.sentence}")
    for warning in outcome["warnings"]:
        warn(warning)
    if outcome["unchecked"]:
        print()
        warn(f"whether trials can run was not checked: {outcome['unchecked']}")
    left_out = 0 if package is None else len(package.notes)
    doubts = left_out + len(outcome["warnings"]) + len(config.without_effect) + bool(outcome["unchecked"])
    warnings = f"and {doubts} warning{'s' if doubts > 1 else ''}" if doubts else "and no warnings"
    print(f"\nNo errors {warnings}. Nothing was started: this was a dry run.")


def _show_package(package: CodePackage) -> None:
    """Print the size of the upload and its largest files."""
    print(f"\nCode of {package.root}: {screen.amount(len(package.files), 'files')}, {format_size(package.total_bytes)}")
    largest = sorted(package.files, key=lambda file: (-file.size, file.path))
    rows = [(file.path, format_size(file.size)) for file in largest[:LARGEST]]
    screen.show_table(("FILE", "SIZE"), rows, "No file is in it.")
    if len(largest) > LARGEST:
        print(f"... and {len(largest) - LARGEST} more")
    for note in package.notes:
        warn(note)
