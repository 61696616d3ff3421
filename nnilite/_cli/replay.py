"""`nnictl experiment replay`: a new tuner gets the calls of an experiment again, and should propose the same.

The store has each call of the tuner in the order in which the tuner got it, so this holds for many trials at once, too.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnilite._cli import access, progress_line, screen
from nnilite.errors import Conflict
from nnilite.records import CallKind, Json

if TYPE_CHECKING:
    from nnilite._experiments.registry import RegistryEntry
    from nnilite._tuner_host.tuner_client import TunerPlan
    from nnilite.config import CheckedConfig
    from nnilite.tuner import Call

_FOLDERS = ("load_checkpoint_dir", "save_checkpoint_dir")
"""What some tuners add to the parameters lies in a folder of this replay, and differs."""

_MOST_NAMED = 5


@dataclass(frozen=True)
class Difference:
    """The first proposal that is not the recorded one. `proposed` None: the tuner had none."""

    trial: str | None
    number: int
    recorded: Json
    proposed: Json


def replay(options: argparse.Namespace) -> int:
    """Replay an experiment. Return the exit code: 1 if a proposal differs. Raises: NniliteError."""
    from nnilite._store.database_file import FILE_NAME
    from nnilite._store.results import read_calls
    from nnilite.config import load_stored

    entry = access.find(options)
    config = load_stored(entry.directory, paths=False)
    _check_seed(config)
    calls = read_calls(entry.directory / FILE_NAME)
    with progress_line.shown("Replaying", quiet=options.json):
        same, difference = asyncio.run(compare(config, calls))
    since = [] if difference is None else list(_list_changes(entry))
    if options.json:
        found = None if difference is None else vars(difference)
        screen.show_json({"id": entry.id, "same": same, "difference": found, "changed": since})
    else:
        print(_describe_outcome(entry, same, difference, since))
    return 0 if difference is None else 1


def _check_seed(config: CheckedConfig) -> None:
    from nnilite._plugins import lookup

    name, arguments = config.tuner.name, config.tuner.class_args
    if name is None or arguments.get("seed") is not None:
        return
    if "seed" in inspect.signature(lookup.tuner_class(name)).parameters:
        raise Conflict(
            f"The tuner {name} had no seed, so its random numbers are not known: in a new experiment, give it one, "
            "such as `classArgs: {seed: 7}`."
        )


async def compare(config: CheckedConfig, calls: Sequence[Call]) -> tuple[int, Difference | None]:
    """Make the calls again. Return how many proposals were the same, and the first that was not.

    Raises: TunerError, ConfigError; Conflict if the tuner wants results whose order is not recorded.
    """
    from nnilite._engine.messages import Ask, History, Tell
    from nnilite._tuner_host.tuner_client import TunerHost

    async def before(until: int) -> list[Call]:
        return list(calls[:until])

    async def histories() -> list[History]:
        return []

    same = 0
    with tempfile.TemporaryDirectory() as folder:
        host = TunerHost(_make_plan(Path(folder), config), before, histories)
        try:
            if await host.open(0):
                raise Conflict(
                    "The tuner is an advisor: what it proposes depends on when intermediate results came, which is not "
                    "recorded. Other tuners can be replayed."
                )
            for place, call in enumerate(calls):
                if call.kind is not CallKind.GENERATE or call.parameter_id is None:
                    await host.call(Tell(place + 1, call))
                    continue
                found = await host.call(Ask((call.parameter_id,), place))
                proposed = found[0] if found else None
                if _strip(proposed) != _strip(call.parameters):
                    return same, Difference(call.trial_job_id, same, call.parameters, proposed)
                same += 1
        finally:
            await host.close(committed=False)
    return same, None


def _make_plan(folder: Path, config: CheckedConfig) -> TunerPlan:
    from nnilite._manager.assembly import make_tuner_plan

    for name in ("log", "checkpoint"):
        (folder / name).mkdir()
    # The recorded calls are the tuner's alone: an assessor learns from intermediate results.
    return replace(make_tuner_plan(folder, config), assessor=None)


def _strip(parameters: Json) -> Json:
    if not isinstance(parameters, dict):
        return parameters
    return {name: value for name, value in parameters.items() if name not in _FOLDERS}


def _list_changes(entry: RegistryEntry) -> Iterator[str]:
    """Yield the packages whose versions are others than when the experiment began."""
    from nnilite._experiments.provenance_reading import read_starts

    starts = read_starts(entry.directory)
    python = starts[0].get("python") if starts else None
    packages = python.get("packages") if isinstance(python, dict) else None
    for name, version in (packages if isinstance(packages, dict) else {}).items():
        try:
            here = metadata.version(str(name))
        except metadata.PackageNotFoundError:
            continue
        if here != version:
            yield f"{name} {version}, now {here}"


def _describe_outcome(entry: RegistryEntry, same: int, difference: Difference | None, since: Sequence[str]) -> str:
    if difference is None:
        return f"Experiment {entry.id}: the tuner proposes the same again, all {same} times."
    trial = f"trial {difference.trial}" if difference.trial else "a trial"
    lines = [f"Experiment {entry.id}: {same} proposals are the same, and then that of {trial} differs."]
    lines += _list_differences(difference)
    if since:
        more = f" and {len(since) - _MOST_NAMED} more" if len(since) > _MOST_NAMED else ""
        lines.append(f"Packages that have changed: {'; '.join(since[:_MOST_NAMED])}{more}.")
    else:
        lines.append("No package is known to have changed: the tuner may use the time, or chance apart from its seed.")
    return "\n".join(lines)


def _list_differences(difference: Difference) -> Iterator[str]:
    recorded, proposed = difference.recorded, difference.proposed
    if proposed is None:
        yield "  The tuner has no more proposals now."
    elif isinstance(recorded, Mapping) and isinstance(proposed, Mapping):
        one, other = _strip(dict(recorded)), _strip(dict(proposed))
        for name in sorted({**one, **other}):
            if one.get(name) != other.get(name):
                yield f"  {name}: was {_show(one, name)}, is {_show(other, name)}"
    else:
        yield f"  was {screen.brief(repr(recorded))}, is {screen.brief(repr(proposed))}"


def _show(parameters: Mapping[str, Any], name: str) -> str:
    return screen.brief(repr(parameters[name])) if name in parameters else "missing"
