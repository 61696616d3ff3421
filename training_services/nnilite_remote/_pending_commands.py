"""Keep the commands that machines have still to receive, in memory and in a file next to the experiment's database.

    cancel    a job's end was asked for
    remove    a job's folder may be tidied up
    finish    the rest of the experiment there can be removed; for every machine that has had a job, at the stop

A command that a machine misses while it is unavailable is sent when it is back, even under a later manager. So the
caller learns whether a command is in the file. While the disk is in trouble, each further call tries to write it.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from nnilite.errors import ServiceError, describe_os_error
from nnilite.service import Handle
from nnilite.services.worker_side import open_regular, write_private

log = logging.getLogger(__name__)

CANCEL, REMOVE, FINISH = "cancel", "remove", "finish"


class PendingCommands:
    """All commands that machines have still to receive.

    A handle names its machine and its job; for `finish` the job is "".
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._commands: dict[tuple[str, str, str], Handle] = {}  # by what, machine and job
        self._is_written = True

    def load(self) -> None:
        """Load the commands of an earlier manager. Raises: ServiceError if they cannot be read now."""
        try:
            with open_regular(str(self._place)) as file:
                found = json.load(file)
            self._commands = {(what, *_names(what, handle)): handle for what, handle in found}
        except FileNotFoundError:
            return
        except OSError as error:
            raise ServiceError(f"{self._place} cannot be read now: {describe_os_error(error)}") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            log.warning("%s is damaged; check the machines for what is left there: %s", self._place, error)

    def add(self, what: str, handle: Handle) -> None:
        """Keep a command. Raises: ServiceError if it cannot be written; this manager still knows it."""
        key = (what, str(handle["machine"]), str(handle["job"]))
        if self._commands.get(key) != handle or not self._is_written:
            self._commands[key] = handle
            self._save()

    def to(self, machine: str) -> list[tuple[str, Handle]]:
        """Return the commands that a machine has still to receive."""
        return [(what, handle) for (what, key, _), handle in self._commands.items() if key == machine]

    def jobs(self, what: str) -> dict[str, Handle]:
        """Return the jobs for which this command is pending, with their handles."""
        return {job: handle for (known, _, job), handle in self._commands.items() if known == what}

    def settle(self, what: str, handle: Handle) -> None:
        """Forget a command that its machine has confirmed. A later manager may repeat it, which does no harm."""
        known = self._commands.pop((what, str(handle["machine"]), str(handle["job"])), None)
        if known is not None or not self._is_written:
            try:
                self._save()
            except ServiceError as error:
                log.warning("%s", error)

    def _save(self) -> None:
        self._is_written = False
        try:
            if self._commands:
                text = json.dumps([[what, dict(handle)] for (what, _, _), handle in self._commands.items()])
                write_private(str(self._place), text)
            else:
                self._place.unlink(missing_ok=True)
        except OSError as error:
            raise ServiceError(f"{self._place} cannot be written: {describe_os_error(error)}") from error
        self._is_written = True


def _names(what: object, handle: Handle) -> tuple[str, str]:
    """Return machine and job. Raises: ValueError, TypeError, KeyError for entries that this program never writes."""
    machine, job = handle["machine"], handle["job"]
    directory = handle["directory"] if what in (CANCEL, REMOVE) else ""
    if what not in (CANCEL, REMOVE, FINISH) or not all(isinstance(text, str) for text in (machine, job, directory)):
        raise ValueError(f"{what!r:.60} is not a command for a machine")
    return machine, job
