"""Keeps and deletes checkpoints. Each trial has one folder for all of its attempts, `checkpoints/<trial>`.

The rule is applied when a trial has ended; before, its folder is not touched. If all folders together are larger than
allowed, the oldest folders of ended trials are deleted first.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckpointRule:
    """The config's `checkpoint`. `keep`: all, last (each trial's newest file), best (the best trial's) or none."""

    keep: str = "all"
    max_bytes: int | None = None


class CheckpointFolders:
    """Owns `checkpoints/` of an experiment on this machine. All methods block and belong in a thread."""

    def __init__(self, directory: Path, rule: CheckpointRule) -> None:
        self._directory = directory
        self._rule = rule

    def trial_ended(self, trial: str, best: str | None, live: frozenset[str]) -> None:
        """Apply the rule. `best`: the best trial so far; `live`: trials whose folders must not be touched."""
        folder = self._directory / trial
        if self._rule.keep == "none":
            remove(folder)
        elif self._rule.keep == "last":
            keep_newest(folder)
        elif self._rule.keep == "best":
            for other in self._ended(live):
                if other.name != best:
                    remove(other)
        if self._rule.max_bytes is not None:
            self._shrink(self._rule.max_bytes, best, live)

    def _ended(self, live: frozenset[str]) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return [path for path in self._directory.iterdir() if path.name not in live]

    def _shrink(self, max_bytes: int, best: str | None, live: frozenset[str]) -> None:
        """Delete folders until the rest fits; that of the best trial goes last."""
        total = folder_size(self._directory)
        ended = sorted(self._ended(live), key=lambda path: (path.name == best, path.stat().st_mtime))
        for folder in ended:
            if total <= max_bytes:
                return
            total -= folder_size(folder)
            log.info("checkpoints of trial %s removed: all are larger than maxSize", folder.name)
            remove(folder)


def keep_newest(folder: Path) -> None:
    """Delete all entries of a folder but the one that was written last."""
    if folder.is_dir():
        entries = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for entry in entries[:-1]:
            remove(entry)


def remove(path: Path) -> None:
    """Delete a file, a link, or a folder with all its content."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder. Files that vanish meanwhile do not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(Path(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total
