"""Which jobs DLC has been asked to make: a note on the manager's disk for each, written before the question.

Without a note, DLC has never been asked, and does not have to be asked whether it has the job. A note whose job is not
there is old enough at some time: then the question never came through.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from nnilite.errors import ServiceError


class Intents:
    """The notes of one experiment. All methods block, and raise: ServiceError if the disk is in trouble."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, name: str) -> None:
        """Note that DLC will be asked now; afterwards the note outlives this machine's end."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / name).open("w") as file:
                os.fsync(file.fileno())
            os.utime(self._folder / name)
            place = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(place)
            finally:
                os.close(place)
        except OSError as error:
            raise ServiceError(f"the manager's folder {self._folder} cannot be written: {error.strerror}") from error

    def age_s(self, name: str) -> float | None:
        """How long ago DLC was asked for the last time; None if it never was."""
        try:
            age_s = time.time() - (self._folder / name).stat().st_mtime
            if age_s < 0:  # the clock was set back
                os.utime(self._folder / name)
            return max(0.0, age_s)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ServiceError(f"the manager's folder {self._folder} cannot be read: {error.strerror}") from error

    def forget(self, name: str) -> None:
        """DLC has not made it, or nobody will ask for it any more."""
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise ServiceError(f"the manager's folder {self._folder} cannot be written: {error.strerror}") from error
