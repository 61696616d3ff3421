"""What machines are still to be told, in memory and in a file beside the experiment's database.

    cancel    a job's end was asked for
    remove    a job's folder may be tidied up
    finish    what is left there of the experiment should go; owed at its stop to every machine that has had a job

What a machine misses while it is away is made up for when it is back, even if that is under a later manager.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from nnilite.service import Handle

log = logging.getLogger(__name__)

CANCEL, REMOVE, FINISH = "cancel", "remove", "finish"


class Owed:
    """All that is owed to machines. A handle names its machine and its job; for `finish` the job is ""."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._owed: dict[tuple[str, str, str], Handle] = {}  # by what, machine and job

    def load(self) -> None:
        """What an earlier manager has left."""
        try:
            for what, handle in json.loads(self._place.read_bytes()):
                self._owed[what, str(handle["machine"]), str(handle["job"])] = handle
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("%s is broken; look at the machines for what is left there: %s", self._place, error)

    def add(self, what: str, handle: Handle) -> None:
        key = (what, str(handle["machine"]), str(handle["job"]))
        if self._owed.get(key) != handle:
            self._owed[key] = handle
            self._save()

    def to(self, machine: str) -> list[tuple[str, Handle]]:
        """What is owed to a machine."""
        return [(what, handle) for (what, key, _), handle in self._owed.items() if key == machine]

    def jobs(self, what: str) -> dict[str, Handle]:
        """The jobs of which this is owed, with their handles."""
        return {job: handle for (known, _, job), handle in self._owed.items() if known == what}

    def settle(self, what: str, handle: Handle) -> None:
        if self._owed.pop((what, str(handle["machine"]), str(handle["job"])), None) is not None:
            self._save()

    def _save(self) -> None:
        try:
            if self._owed:
                text = json.dumps([[what, dict(handle)] for (what, _, _), handle in self._owed.items()])
                draft = self._place.with_name(f".{self._place.name}.new")
                draft.write_text(text, "ascii")
                draft.replace(self._place)
            else:
                self._place.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._place, error)
