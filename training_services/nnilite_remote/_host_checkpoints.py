"""Brings the checkpoints of earlier attempts to the machine of the next one, whichever machine they ran on.

Checkpoints are on the machine that wrote them. Before a trial is retried, all machines that are up are asked what they
have of it. If the newest checkpoints are not on the trial's next machine, they are copied there first, through this
machine, which keeps no copy. A machine that is down cannot answer: then an older checkpoint is used, or none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nnilite.errors import NoCapacity
from nnilite.services.task_ends import end_tasks
from nnilite.ssh.errors import LocalDiskFull, MachineError
from nnilite_remote._machine import Machine

log = logging.getLogger(__name__)

_TRIES = 3
_ROOM_S = 30.0  # how long to wait before checking again whether this machine has room


@dataclass(frozen=True)
class HostTrace:
    """What a machine has of a trial."""

    attempt: int | None  # the last one that ran there
    lost: bool  # ... and left no word on how it ended
    checkpoint: int | None  # the last attempt that wrote to the checkpoints there; None if there are none
    directory: str  # folder of the checkpoints


class _MissingRoom(NamedTuple):
    until_s: float
    reason: str


class HostCheckpoints:
    """Finds and moves checkpoints. `folder` is for archives in transit."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._moves: dict[str, asyncio.Task[None]] = {}  # by trial
        self._tries: dict[str, int] = {}
        self._waits: dict[str, _MissingRoom] = {}

    async def traces(self, trial: str, machines: Sequence[Machine]) -> dict[Machine, HostTrace]:
        """Return what the machines that are up have of the trial. Raises: NoCapacity while something is in transit."""
        if trial in self._moves:
            raise NoCapacity(self._moves[trial].get_name())
        asked = [machine for machine in machines if machine.up]
        found = await asyncio.gather(*(_trace(machine, trial) for machine in asked))
        return {machine: trace for machine, trace in zip(asked, found, strict=True) if trace is not None}

    def transfer(self, trial: str, target: Machine, traces: Mapping[Machine, HostTrace]) -> None:
        """Ensure that the newest checkpoints are on the machine. Raises: NoCapacity while they are in transit."""
        saved = {machine: t.checkpoint for machine, t in traces.items() if t.checkpoint is not None}
        if not saved or saved.get(target) == max(saved.values()):
            return
        source = max(saved, key=lambda machine: saved[machine])
        wait = self._waits.pop(trial, None)
        if wait is not None and time.monotonic() < wait.until_s:
            self._waits[trial] = wait
            raise NoCapacity(wait.reason)
        tries = self._tries.pop(trial, 0)
        if tries == _TRIES:
            log.warning("trial %s starts on %s without its checkpoints on %s", trial, target.title, source.title)
            return
        self._tries[trial] = tries + 1
        what = f"its checkpoints are being brought from {source.title} to {target.title}"
        self._moves[trial] = asyncio.create_task(self._move(trial, source, target, traces[source]), name=what)
        self._moves[trial].add_done_callback(lambda _: self._moves.pop(trial))
        raise NoCapacity(what)

    async def _move(self, trial: str, source: Machine, target: Machine, trace: HostTrace) -> None:
        archive = self._folder / f".{trial}.checkpoints.tar"
        try:
            await source.attempts.give_checkpoints(trace.directory, archive)
            await target.attempts.take_checkpoints(trial, trace.checkpoint or 0, archive)
        except LocalDiskFull as error:  # until somebody makes room; without them, hours of work may be lost
            self._tries.pop(trial, None)
            reason = f"its checkpoints cannot be brought from {source.title} to {target.title}: {error}"
            log.warning("trial %s waits: %s", trial, reason)
            self._waits[trial] = _MissingRoom(time.monotonic() + _ROOM_S, reason)
        except (MachineError, OSError) as error:
            log.warning("the checkpoints of trial %s on %s cannot be moved: %s", trial, source.title, error)
        else:
            del self._tries[trial]
            log.info("the checkpoints of trial %s are on %s now", trial, target.title)
        finally:
            archive.unlink(missing_ok=True)

    async def close(self) -> None:
        """Stop all transfers; the checkpoints stay where they were."""
        await end_tasks(self._moves.values())


def rank(machine: Machine, traces: Mapping[Machine, HostTrace]) -> int:
    """Return a place in the order of machines.

    Machines with the checkpoints come first; those that have lost the trial, or do not answer, come last.
    """
    trace = traces.get(machine)
    if trace is None or trace.lost:
        return 1
    newest = max((t.checkpoint for t in traces.values() if t.checkpoint is not None), default=None)
    return -1 if newest is not None and trace.checkpoint == newest else 0


async def _trace(machine: Machine, trial: str) -> HostTrace | None:
    try:
        return HostTrace(**await machine.attempts.trace(trial))
    except MachineError as error:
        log.info("machine %s cannot list what it has of trial %s: %s", machine.title, trial, error)
        return None
