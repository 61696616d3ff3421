"""What is kept of the trials' checkpoints: each trial has one folder, `checkpoints/<trial>`, which outlives attempts.

Applied when a trial has ended; while it lives, its folder is its own. The oldest folders of ended trials go first
where all together are larger than allowed.
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


class Checkpoints:
    """Owns `checkpoints/` of an experiment on this machine. All methods block: call them in a thread."""

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
        """The best trial's folder goes last."""
        total = folder_size(self._directory)
        ended = sorted(self._ended(live), key=lambda path: (path.name == best, path.stat().st_mtime))
        for folder in ended:
            if total <= max_bytes:
                return
            total -= folder_size(folder)
            log.info("checkpoints of trial %s removed: all are larger than maxSize", folder.name)
            remove(folder)


def keep_newest(folder: Path) -> None:
    """Of the entries of a folder leave only the one that was written last."""
    if folder.is_dir():
        entries = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for entry in entries[:-1]:
            remove(entry)


def remove(path: Path) -> None:
    """A file, a link or a folder with all in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder; what vanishes meanwhile does not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(Path(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total
