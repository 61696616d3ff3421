"""Compares the folders of trials that ran on this machine with the database, for `nnictl verify`.

A folder may be gone, since people delete them to make room, and its reports and its end are removed when the manager
has them: only what is there is compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnilite._store.integrity import Defect, IntegrityCheck, StoredAttempt
from nnilite.errors import NotFound
from nnilite.foreign_files import open_below
from nnilite.records import Attributed, Exited, MetricKind, Reported
from nnilite.services.keeper_folder import read_events

_MOST_PARAMETERS_BYTES = 64 << 20


def check_folders(directory: Path, check: IntegrityCheck) -> tuple[int, list[Defect]]:
    """Compare folders with the database. Return the number of folders that were compared, and the defects."""
    findings: list[Defect] = []
    count = 0
    for attempt in check.attempts():
        folder = directory / "trials" / attempt.trial / str(attempt.number)
        if os.path.lexists(folder / "parameter.cfg"):
            count += 1
            findings += _compared(folder, attempt, check)
    return count, findings


def _compared(folder: Path, attempt: StoredAttempt, check: IntegrityCheck) -> Iterator[Defect]:
    place = f"trial {attempt.sequence} ({attempt.trial}), attempt {attempt.number}"
    try:
        with open_below(folder, "parameter.cfg") as file:
            given = json.loads(file.read(_MOST_PARAMETERS_BYTES))
        events = read_events(folder)
    except (OSError, NotFound, ValueError, RecursionError) as error:
        yield Defect(place, f"its files cannot be read: {error}")
        return
    yield from _parameters(place, given, attempt)
    # Without events, the manager has everything, and the reports were removed from the folder.
    if any(isinstance(event, (Reported, Attributed, Exited)) for event in events):
        yield from _metrics(place, events, check.metrics(attempt))
        yield from _attributes(place, events, check.attributes(attempt))
    yield from _end(place, events, attempt)


def _parameters(place: str, given: Any, attempt: StoredAttempt) -> Iterator[Defect]:
    # Compared as text, since NaN does not equal itself.
    if not isinstance(given, dict) or json.dumps(given.get("parameters")) != json.dumps(attempt.parameters):
        what = _text(given.get("parameters") if isinstance(given, dict) else given)
        yield Defect(place, f"it ran with {what}, and {_text(attempt.parameters)} is recorded")


def _metrics(place: str, events: list[Any], stored: dict[int, tuple[bool, str]]) -> Iterator[Defect]:
    """Check that each metric in the folder is stored with its value: a manager acknowledges no metric before that."""
    reported = [event for event in events if isinstance(event, Reported)]
    missing = [event.index for event in reported if event.index not in stored]
    if missing:
        yield Defect(
            place, f"it reported {len(reported)} metrics, and {len(missing)} are not stored, from {missing[0]}"
        )
    for event in reported:
        known = stored.get(event.index)
        metric = (event.kind is MetricKind.FINAL, json.dumps(event.value))
        if known is not None and known != metric:
            yield Defect(place, f"it reported {metric[1]:.60} as metric {event.index}, and {known[1]:.60} is stored")
            return
    if len(stored) > len(reported):
        yield Defect(place, f"{len(stored)} metrics are stored, and it reported {len(reported)}")


def _attributes(place: str, events: list[Any], stored: dict[int, tuple[str, str]]) -> Iterator[Defect]:
    """Check that each attribute in the folder is stored with its value, and no other."""
    reported = {event.index: (event.name, json.dumps(event.value)) for event in events if isinstance(event, Attributed)}
    odd = sorted(index for index in {*reported, *stored} if reported.get(index) != stored.get(index))
    if odd:
        there, here = reported.get(odd[0]), stored.get(odd[0])
        yield Defect(place, f"it set {there!s:.80} as report {odd[0]}, and {here!s:.80} is stored")


def _end(place: str, events: list[Any], attempt: StoredAttempt) -> Iterator[Defect]:
    end = next((event for event in events if isinstance(event, Exited)), None)
    if end is not None and attempt.state in ("SUCCEEDED", "FAILED") and end.code != attempt.exit_code:
        yield Defect(place, f"it ended with exit code {end.code}, and {attempt.exit_code} is recorded")


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."
