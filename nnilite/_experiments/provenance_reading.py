"""Reads `provenance.json` of an experiment's folder: what ran, one entry for each start of its manager."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from nnilite._experiments.documents import read_document
from nnilite.records import Json

FILE_NAME = "provenance.json"
_CURE = "remove it: only the record of what ran is lost"


def read_starts(directory: Path) -> list[dict[str, Json]]:
    """Return the entries, the latest last; none where nothing is recorded. Raises: DamagedFile, UnreadableFile."""
    try:
        document = read_document(directory / FILE_NAME, _CURE)
    except FileNotFoundError:
        return []
    starts = document.fields.get("starts")
    if not isinstance(starts, list) or not all(isinstance(one, dict) for one in starts):
        raise document.wrong("starts", "a list of objects")
    return starts


_APART = ("time", "environment")  # they differ between any two starts
_SHOWN = 16  # digits of a hash


def comparable(start: Mapping[str, Json], workers: Iterable[Mapping[str, Json]] = ()) -> dict[str, Json]:
    """Return what two starts are compared by: all but time and environment, with each changed file.

    `workers`: what trials ran with.
    """
    facts = {name: value for name, value in start.items() if name not in _APART}
    if known := list(workers):
        facts["workers"] = _merge(known)
    git = facts.get("git")
    if isinstance(git, dict):
        diff = git.get("diff")
        rest: dict[str, Json] = {name: value for name, value in git.items() if name not in ("diff", "isCut")}
        # Without any change there is no entry, so that only the files of the other start are listed.
        facts["git"] = {**rest, **({"changes": found} if (found := _changes(diff)) != {} else {})}
    code = facts.get("code")
    if isinstance(code, dict):
        files = code.get("files")
        short = {name: str(digest)[:_SHOWN] for name, digest in files.items()} if isinstance(files, dict) else files
        facts["code"] = {**code, "hash": str(code.get("hash"))[:_SHOWN], "files": short}
    return facts


def _changes(diff: Json) -> dict[str, Json] | None:
    """Return the changed files of a difference: how many lines, and a digest, which differs where the lines do.

    None where git did not answer.
    """
    if not isinstance(diff, str):
        return None
    found: dict[str, Json] = {}
    for part in ("\n" + diff).split("\ndiff --git ")[1:]:
        head, _, lines = part.partition("\n")
        body = lines[lines.find("\n@@") + 1 :].splitlines()
        added, removed = (sum(line.startswith(sign) for line in body) for sign in "+-")
        digest = hashlib.sha256(part.encode(errors="surrogateescape")).hexdigest()[:8]
        found[head.rpartition(" b/")[2]] = f"+{added} -{removed} lines ({digest})"
    return found


def describe_gpus(gpus: Json) -> str:
    """Return the GPUs of a host as one text, equal ones with their number: `2 x Tesla T4, 535.129.03`."""
    counts = Counter(map(str, gpus)) if isinstance(gpus, list) else Counter()
    return "; ".join(gpu if count == 1 else f"{count} x {gpu}" for gpu, count in counts.items())


def _merge(workers: Iterable[Mapping[str, Json]]) -> dict[str, Json]:
    """Return what several workers have as one: where they differ, all their values."""
    values: dict[str, set[str]] = {}
    versions: dict[str, set[str]] = {}
    for worker in workers:
        for name in ("python", "executable", "system"):
            values.setdefault(name, set()).add(str(worker.get(name, "")))
        values.setdefault("gpus", set()).add(describe_gpus(worker.get("gpus")))
        for package, version in dict(worker.get("packages") or {}).items():
            versions.setdefault(package, set()).add(str(version))
    packages: dict[str, Json] = {package: ", ".join(sorted(found)) for package, found in versions.items()}
    return {**{name: ", ".join(sorted(found)) for name, found in values.items()}, "packages": packages}
