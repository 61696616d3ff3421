"""Reads `provenance.json` of an experiment's folder: what ran, one entry for each start of its manager."""

from __future__ import annotations

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
