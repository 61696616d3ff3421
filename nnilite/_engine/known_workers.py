"""Which hosts have said what trials run with there, so that each is asked once by a manager."""

from __future__ import annotations

from nnilite import _worker_key
from nnilite._sdk import worker_facts
from nnilite.records import Attributed

MOST = 200
"""With so many known hosts no more are asked: on some platforms each trial has a host of its own."""


class KnownWorkers:
    """The hosts, each with its Python, that have said it since the start of this manager."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def take(self, event: Attributed) -> bool:
        """Return whether this is what a host says, and no attribute that the trial's code has set."""
        if event.name != worker_facts.NAME or event.refused or not isinstance(event.value, dict):
            return False
        host, executable = event.value.get("host"), event.value.get("executable")
        if not isinstance(host, str) or not isinstance(executable, str):
            return False
        if len(self._keys) < MOST:
            self._keys.add(_worker_key(host, executable))
        return True

    def question(self) -> dict[str, str]:
        """Return the variable that asks a trial for facts; {} if enough is known."""
        return {} if len(self._keys) >= MOST else {worker_facts.ASKED: ",".join(sorted(self._keys))}
