"""The checkpoints on this machine. Each trial has one folder for all of its attempts, `checkpoints/<trial>`.

What is to go is first renamed to `checkpoints/.gone-<trial>`, which is quick however large it is, and then deleted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnilite._checkpoints.checkpoint_rule import Retention
from nnilite._keeper.folder import WRITER_SUFFIX, is_checkpoint_draft

CHECKPOINTS = "checkpoints"
"""The folder of an experiment that has those of its trials."""

_GONE = ".gone-"  # no trial's name begins like this


class CheckpointFolders:
    """The folder `checkpoints` of an experiment on this machine, as a `CheckpointPlace`."""

    def __init__(self, directory: Path) -> None:
        self.title = str(directory)
        self._directory = directory

    def holding(self, trials: Collection[str]) -> Collection[str]:
        try:
            names = {path.name.removeprefix(_GONE).removesuffix(WRITER_SUFFIX) for path in self._directory.iterdir()}
        except FileNotFoundError:
            return ()
        return [trial for trial in trials if trial in names]

    def look(self, trial: str, attempt: int, retention: Retention) -> FolderDeletion | None:
        folder, gone = self._directory / trial, self._directory / (_GONE + trial)
        entries: list[Path] = []
        note = None
        if retention is Retention.NEWEST and os.path.lexists(folder):
            entries = _older(folder)
        elif retention is not Retention.ALL:
            # A trial that has saved nothing has the note alone.
            note = Path(f"{folder}{WRITER_SUFFIX}")
            entries = [folder] if os.path.lexists(folder) else []
        there = entries or os.path.lexists(gone) or (note is not None and os.path.lexists(note))
        return FolderDeletion(gone, entries, note) if there else None

    def size(self, trial: str, attempt: int) -> int:
        return measure_folder(self._directory / trial) + measure_folder(self._directory / (_GONE + trial))


@dataclass(frozen=True)
class FolderDeletion:
    """Entries to delete: a trial's folder with its `note`, or some of what is in the folder."""

    gone: Path
    entries: list[Path]
    note: Path | None

    def set_aside(self) -> None:
        # What was set aside before, and could not be deleted, has to go first, or it would be in the way.
        if os.path.lexists(self.gone):
            return
        if self.note is not None:
            self.note.unlink(missing_ok=True)
            for folder in self.entries:
                folder.rename(self.gone)
            return
        if not self.entries:
            return
        self.gone.mkdir()
        for entry in self.entries:
            entry.rename(self.gone / entry.name)

    def delete(self) -> None:
        remove(self.gone)


def _older(folder: Path) -> list[Path]:
    """Return all entries of a folder but the newest one, and links to it. Those that vanish meanwhile are left out.

    A file whose writing was cut off is not the newest one, but what it was to replace is.
    """
    dated: list[tuple[int, Path]] = []
    try:
        entries = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    drafts = [entry for entry in entries if is_checkpoint_draft(entry.name)]
    for entry in set(entries).difference(drafts):
        with contextlib.suppress(FileNotFoundError):
            # A link is as new as what it leads to, if that is there.
            dated.append((entry.stat(follow_symlinks=entry.exists()).st_mtime_ns, entry))
    if not dated:
        return drafts
    dated.sort()
    newest, place = dated[-1][1], Path(os.path.realpath(folder))

    def leads_to(entry: Path) -> str:
        target = Path(os.path.realpath(entry))  # `Path.resolve` raises for a loop of links
        return target.relative_to(place).parts[0] if place in target.parents else entry.name

    return drafts + [entry for _, entry in dated if leads_to(entry) != leads_to(newest)]


def remove(path: Path) -> None:
    """Delete a file, a link, or a folder with all its content. Raises: OSError, after as much as possible is gone."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    errors: list[OSError] = []

    def failed(work: object, where: str, error: Any) -> None:
        # Before Python 3.12 it comes as what `sys.exc_info` gives.
        problem = error[1] if isinstance(error, tuple) else error
        if not isinstance(problem, FileNotFoundError):
            errors.append(problem)

    if sys.version_info >= (3, 12):
        shutil.rmtree(path, onexc=failed)
    else:
        shutil.rmtree(path, onerror=failed)
    if errors:
        raise errors[0]


def measure_folder(folder: Path) -> int:
    """Return bytes of all files below a folder. Files that vanish meanwhile do not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(Path(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total
