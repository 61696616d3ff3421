"""`nnictl experiment provenance`: what ran in an experiment, and how it differs from what ran in another one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nnilite._cli import access, screen
from nnilite._experiments import registry
from nnilite._experiments.provenance_reading import describe_gpus
from nnilite._experiments.registry import RegistryEntry
from nnilite._running.reading import opened, what_ran
from nnilite.config import load_stored
from nnilite.errors import NotFound
from nnilite.records.dotted import flatten

_SHOWN = 40  # lines of differences
_HOSTS = 5
_WORKERS = "workers."


def provenance(options: argparse.Namespace) -> None:
    """Print what ran at the last start of an experiment, or what differs from another one. Raises: NniliteError."""
    entry = access.find(options, read_only=True)
    if options.compare is None:
        found = _read(entry)
        if options.json:
            screen.show_json({**found["start"], "workers": found["workers"]})
        else:
            _show(found["start"], found["workers"])
        return
    other = registry.find(options.compare, read_only=True)
    lines = list(differences(_facts(entry), _facts(other)))
    if options.json:
        screen.show_json([dict(zip(("what", entry.id, other.id), line, strict=True)) for line in lines])
        return
    screen.show_table(("WHAT", entry.id, other.id), lines[:_SHOWN], "Configuration, code and packages are the same.")
    if len(lines) > _SHOWN:
        print(f"... and {len(lines) - _SHOWN} more; --json shows all")


def _read(entry: RegistryEntry, *, comparable: bool = False) -> dict[str, Any]:
    with opened(entry) as client:
        found = what_ran(client, comparable=comparable)
    if found["start"] is None:
        raise NotFound(
            f"There is no record of what ran in {entry.id}; it began a moment ago, has recordProvenance: false, or is "
            "older than this version."
        )
    return found


def _show(start: Mapping[str, Any], workers: Sequence[Mapping[str, Any]]) -> None:
    code, git, python, machine = (_part(start, name) for name in ("code", "git", "python", "machine"))
    files = _part(code, "files")
    screen.show_facts(
        {
            "Started": screen.moment(start.get("time")),
            "Command": "; ".join(dict.fromkeys(map(str, start.get("commands") or []))),
            "Seeds": ", ".join(f"{word} {seed}" for word, seed in _part(start, "seeds").items()) or None,
            "Code": f"{code.get('folder')}, {screen.amount(len(files), 'files')}, SHA-256 {str(code.get('hash'))[:12]}",
            "Not hashed": code.get("reason") or None,
            "Git": f"{git.get('branch')} at {str(git.get('commit'))[:12]}, {_changes(git)}" if git else "no repository",
            "Python": f"{python.get('version')}, {len(_part(python, 'packages'))} packages, {python.get('executable')}",
            "nnilite": start.get("nnilite"),
            "Machine": machine.get("system"),
            "GPUs": ", ".join(map(str, machine.get("gpus") or [])) or None,
        }
    )
    if workers:
        columns = ("TRIALS RAN WITH", "PACKAGES", "EXECUTABLE", "GPUS", "ON")
        screen.show_table(columns, [*map(_describe_worker, workers)], "")
    print("--json shows files, packages, the difference to the commit, and names of environment variables.")


def _describe_worker(worker: Mapping[str, Any]) -> tuple[object, ...]:
    hosts = list(_part(worker, "hosts"))
    more = f" and {len(hosts) - _HOSTS} others" if len(hosts) > _HOSTS else ""
    packages = len(_part(worker, "packages"))
    python, gpus = f"Python {worker.get('python')}", describe_gpus(worker.get("gpus"))
    return python, packages, worker.get("executable"), gpus, ", ".join(hosts[:_HOSTS]) + more


def _changes(git: Mapping[str, Any]) -> str:
    diff, untracked = git.get("diff"), git.get("untracked")
    changed = sum(line.startswith("diff --git ") for line in str(diff or "").splitlines())
    least = "at least " if git.get("isCut") else ""
    since = f"{least}{screen.amount(changed, 'files')} changed since" if changed else "no changes since"
    others = "? files" if untracked is None else screen.amount(untracked, "files")
    return f"{'changes unknown' if diff is None else since}, {others} not in it"


def _part(start: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = start.get(name)
    return part if isinstance(part, dict) else {}


def _facts(entry: RegistryEntry) -> dict[str, str]:
    """Return all that two experiments are compared by, in one level."""
    config = load_stored(entry.directory, paths=False).json()
    return {
        name: screen.brief(str(value))
        for name, value in flatten({"config": config, **_read(entry, comparable=True)["start"]})
    }


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield what differs, with both values; "-" where one has none.

    What trials ran with is left out if only one of them says it: no trial of the other may have come so far.
    """
    say_it = all(any(name.startswith(_WORKERS) for name in facts) for facts in (one, other))
    for name in sorted({**one, **other}):
        if one.get(name) != other.get(name) and (say_it or not name.startswith(_WORKERS)):
            yield name, one.get(name, "-"), other.get(name, "-")
