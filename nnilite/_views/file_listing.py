"""The files of a trial as they are listed: what is on this machine, and what an attempt has elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nnilite._answers.backend import FileEntry, FileListing, NonFileEntry
from nnilite._rest.files import is_private
from nnilite.foreign_files import FILE, GROWING, LISTED_MAX, list_below
from nnilite.service import TrialFile

# File systems round times.
_SAME_TIME_S = 2.0


def list_folder(folder: Path) -> FileListing:
    """List a trial's folder on this machine. Blocks. Raises: NotFound."""
    found = list_below(folder, is_private)
    files = [FileEntry(one.path, one.size, one.modified) for one in found if one.kind == FILE]
    return FileListing(files, _others(found), incomplete(found))


def merged(here: FileListing, elsewhere: Sequence[TrialFile], note: str) -> FileListing:
    """Return one list of what is on this machine and of what an attempt has elsewhere, as `listed` gives it."""
    known = {one.path: one for one in here.files}
    for one in elsewhere:
        copy = known.get(one.path)
        is_here = copy is not None and is_same(TrialFile(copy.path, copy.size, copy.modified), one)
        if one.kind == FILE and not is_here:
            known[one.path] = FileEntry(one.path, one.size, one.modified, here=False)
    others = {one.path: one for one in (*here.others, *_others(elsewhere))}
    files = sorted(known.values(), key=lambda one: one.path)[:LISTED_MAX]
    return FileListing(files, [others[path] for path in sorted(others)], note or here.note)


def is_same(here: TrialFile, there: TrialFile) -> bool:
    """Return whether a copy is what is listed elsewhere. Output that comes by itself may be longer here."""
    if here.path.rpartition("/")[2] in GROWING:
        return here.size >= there.size
    return here.size == there.size and abs(here.modified - there.modified) < _SAME_TIME_S


def incomplete(files: Sequence[TrialFile]) -> str:
    return f"Only the first {LISTED_MAX} entries are listed." if len(files) >= LISTED_MAX else ""


def _others(files: Sequence[TrialFile]) -> list[NonFileEntry]:
    return [NonFileEntry(one.path, one.kind, one.target) for one in files if one.kind != FILE]
