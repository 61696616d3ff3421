"""Book which job is on which machine: in memory, and in a file next to the experiment's database.

A job is booked before its machine is asked to start it. So after any break, this machine is asked whether the job was
started, and no other. The file is written first and memory changed afterwards: the next manager would not know what is
only in memory, and would start the job on another machine, too.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from nnilite.errors import ServiceError, describe_os_error
from nnilite.services.worker_side import open_regular, write_private

log = logging.getLogger(__name__)

_LONGEST_NUMBER = 12


@dataclass(frozen=True)
class Booking:
    """A job's machine, its folder there, and its GPUs."""

    machine: str
    directory: str
    gpus: tuple[int, ...] | None = None


class Bookings:
    """All bookings of one service."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._bookings: dict[str, Booking] = {}

    def load(self) -> None:
        """Load the bookings of an earlier manager. Raises: ServiceError if they cannot be read now."""
        try:
            with open_regular(str(self._place)) as file:
                found = json.load(file)
            self._bookings = {_name(job): _booking(fields) for job, fields in found.items()}
        except FileNotFoundError:
            return
        # Without its booking, a job whose start was not answered would be started on another machine, too.
        except OSError as error:
            raise ServiceError(f"{self._place} cannot be read now: {describe_os_error(error)}") from error
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            log.warning("ignored the damaged bookings in %s: %s", self._place, error)

    def get(self, job: str) -> Booking | None:
        return self._bookings.get(job)

    def parts(self, job: str) -> list[tuple[str, Booking]]:
        """Return the bookings of all nodes of a job, by their names and in the order of their numbers."""
        found: list[tuple[int, str]] = []
        for name in self._bookings:
            own, _, number = name.partition("/")
            if own == job and (not number or number.isdecimal()):
                found.append((int(number or 0), name))
        return [(name, self._bookings[name]) for _, name in sorted(found)]

    def on(self, machine: str) -> dict[str, tuple[int, ...]]:
        """Return the jobs on a machine, with their GPUs."""
        return {job: b.gpus or () for job, b in self._bookings.items() if b.machine == machine}

    def book(self, job: str, booking: Booking) -> None:
        """Book the machine of a job. Raises: ServiceError if the booking cannot be written, and then there is none."""
        if self._bookings.get(job) != booking:
            self._save({**self._bookings, job: booking})

    def book_all(self, bookings: dict[str, Booking]) -> None:
        """Book several at once. Raises: ServiceError if they cannot be written, and then none of them is booked."""
        self._save({**self._bookings, **bookings})

    def free(self, job: str) -> None:
        """Forget a job that no longer runs on its machine."""
        left = {name: booking for name, booking in self._bookings.items() if name != job}
        if len(left) == len(self._bookings):
            return
        try:
            self._save(left)
        # An old booking in the file does no harm: the job is never submitted again, and a restart frees it again.
        except ServiceError as error:
            log.warning("%s", error)
            self._bookings = left

    def _save(self, bookings: dict[str, Booking]) -> None:
        text = json.dumps({job: asdict(booking) for job, booking in bookings.items()})
        try:
            write_private(str(self._place), text)
        except OSError as error:
            raise ServiceError(f"{self._place} cannot be written: {describe_os_error(error)}") from error
        self._bookings = bookings


def _name(job: str) -> str:
    number = job.partition("/")[2]
    if len(number) > _LONGEST_NUMBER:
        raise ValueError(f"{number!r:.60} is not the number of a part")
    return job


def _booking(fields: dict[str, object]) -> Booking:
    machine, directory, gpus = fields["machine"], fields["directory"], fields["gpus"]
    if not isinstance(machine, str) or not isinstance(directory, str):
        raise ValueError(f"{machine!r:.60}, {directory!r:.60} are not a machine and a folder")
    if gpus is None:
        return Booking(machine, directory)
    if not isinstance(gpus, list) or not all(type(index) is int and index >= 0 for index in gpus):
        raise ValueError(f"{gpus!r:.60} are not GPUs")
    return Booking(machine, directory, tuple(gpus))
