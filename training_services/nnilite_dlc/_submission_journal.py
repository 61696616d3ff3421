"""Record which jobs DLC has been asked to make: a note on the manager's disk for each, written before the call.

Without a note, DLC was never asked, and need not be asked whether it has the job. A note whose job DLC does not list
after some time means that the call never arrived.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from nnilite.errors import ServiceError, describe_os_error


class SubmissionJournal:
    """The notes of one experiment. All methods block, and raise: ServiceError if the disk is in trouble."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, name: str) -> None:
        """Note that DLC is asked now; the note outlives this machine."""
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
            raise ServiceError(
                f"cannot write to the manager's folder {self._folder}: {describe_os_error(error)}"
            ) from error

    def age_s(self, name: str) -> float | None:
        """Return the seconds since DLC was last asked; None if it never was."""
        try:
            age_s = time.time() - (self._folder / name).stat().st_mtime
            if age_s < 0:  # the clock was set back
                os.utime(self._folder / name)
            return max(0.0, age_s)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ServiceError(
                f"cannot read the manager's folder {self._folder}: {describe_os_error(error)}"
            ) from error

    def forget(self, name: str) -> None:
        """Forget a job that DLC has not made, or that is never asked for again."""
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise ServiceError(
                f"cannot write to the manager's folder {self._folder}: {describe_os_error(error)}"
            ) from error
