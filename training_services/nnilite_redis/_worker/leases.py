"""Keep, in a file that the guard reads, until when each trial may run without contact to Redis."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nnilite.services.worker_side import write_private
from nnilite_redis._worker import guard

log = logging.getLogger(__name__)

_SHARE = 0.75  # a trial must have been stopped after this share of the period


@dataclass(frozen=True)
class Lease:
    """The lease of one attempt, by `guard.now_s`."""

    until: float  # it is stopped then
    end: float  # it counts as lost then

    @classmethod
    def begin(cls, heard_s: float, period_s: float) -> Lease:
        """Return a lease that starts when the heartbeat was sent, not when it was answered."""
        return cls(heard_s + _SHARE * period_s, heard_s + period_s)

    @property
    def valid(self) -> bool:
        return guard.now_s() < self.until


NO_LEASE = Lease(0.0, 0.0)


class Leases:
    """The leases of all attempts of one worker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guard: subprocess.Popen[bytes] | None = None
        self._written: dict[str, Lease] = {}

    def write(self, leases: Mapping[Path, Lease]) -> None:
        """Replace the file. Raises: OSError."""
        known = {str(path): lease for path, lease in leases.items()}
        if known == self._written:
            return
        document = {place: {"until": lease.until, "end": lease.end} for place, lease in known.items()}
        write_private(str(self._folder / "leases.json"), json.dumps(document))
        self._written = known
        if known:
            self.ensure_guard()

    def ensure_guard(self) -> None:
        """Start the guard, unless one is running."""
        if self._guard is not None and self._guard.poll() is None:
            return
        if guard.is_locked(self._folder / "guard.lock"):
            return
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard.__file__).resolve()), str(self._folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        log.debug("the guard is process %d", self._guard.pid)
