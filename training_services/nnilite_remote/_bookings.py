"""Which job is on which machine: in memory, and in a file beside the experiment's database.

A job is booked before its machine is asked to start it, so that after any break it is asked for there, and nowhere
else, whether it was started.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from nnilite.errors import ServiceError

log = logging.getLogger(__name__)


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
        """What an earlier manager had booked. Raises: ServiceError if that cannot be read now."""
        try:
            found = json.loads(self._place.read_bytes())
            self._bookings = {job: _booking(fields) for job, fields in found.items()}
        except FileNotFoundError:
            return
        # Without its booking, a job whose start was not answered would be started on another machine, too.
        except OSError as error:
            raise ServiceError(f"{self._place} cannot be read now: {error.strerror}") from error
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            log.warning("the bookings in %s are broken and left out: %s", self._place, error)

    def get(self, job: str) -> Booking | None:
        return self._bookings.get(job)

    def on(self, machine: str) -> dict[str, tuple[int, ...]]:
        """The jobs on a machine, with their GPUs."""
        return {job: b.gpus or () for job, b in self._bookings.items() if b.machine == machine}

    def book(self, job: str, booking: Booking) -> None:
        """Raises: ServiceError if it cannot be written down."""
        if self._bookings.get(job) != booking:
            self._bookings[job] = booking
            self._save()

    def free(self, job: str) -> None:
        if self._bookings.pop(job, None) is not None:
            try:
                self._save()
            except ServiceError as error:  # it is known again by its handle
                log.warning("%s", error)

    def _save(self) -> None:
        draft = self._place.with_name(f".{self._place.name}.new")
        text = json.dumps({job: asdict(booking) for job, booking in self._bookings.items()})
        try:
            target = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(target, "w", encoding="ascii") as file:
                file.write(text)
            draft.replace(self._place)
        except OSError as error:
            raise ServiceError(f"{self._place} cannot be written: {error.strerror}") from error


def _booking(fields: dict[str, object]) -> Booking:
    machine, directory, gpus = fields["machine"], fields["directory"], fields["gpus"]
    if not isinstance(machine, str) or not isinstance(directory, str):
        raise ValueError(f"{machine!r:.60}, {directory!r:.60} is no place")
    if gpus is None:
        return Booking(machine, directory)
    if not isinstance(gpus, list) or not all(type(index) is int and index >= 0 for index in gpus):
        raise ValueError(f"{gpus!r:.60} are no GPUs")
    return Booking(machine, directory, tuple(gpus))
