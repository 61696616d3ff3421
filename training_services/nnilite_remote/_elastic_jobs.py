"""Trials whose number of machines changes while they run: they grow when machines are free, up to `nodes.max`.

A machine that is lost or leaves is forgotten once its part has ended there, or has been silent for longer than the
first node waits. Each part that joins has a number that no other part of the attempt has had, and a folder that ends
with it. What is written before a part is started is all that is needed to start it, to find it again and to end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nnilite.errors import Conflict, NniliteError, NoCapacity, ServiceError, describe_os_error
from nnilite.records import Json
from nnilite.service import Handle, Job, JobState, JobStatus
from nnilite.services.node_places import nodes_of_job
from nnilite.services.worker_side import open_regular, write_private
from nnilite_remote._bookings import Booking, Bookings
from nnilite_remote._machine import Machine
from nnilite_remote._machine_choice import Choice
from nnilite_remote._machines import Machines
from nnilite_remote._nodes import name_of_folder, node_job, parts_of, unanswered

log = logging.getLogger(__name__)

LOST_S = 90.0
"""Silence of a machine after which its part is replaced: a little more than the first node waits for it."""

_STEADY_S = 300.0  # a part that ran this long shows that its machine is fine
_LONGEST_PAUSE_S = 1800.0
_TAKEN_S = 30.0  # from the moment a drill takes a node until another one may come
_AGAIN_S = 10.0  # after a start that has failed, and while trials wait for machines


class _Pauses:
    """For how long a machine gets no other part of a job whose parts have ended there soon after their start.

    The first node does not want them, or their processes cannot run there, which would stop all others each time.
    """

    def __init__(self) -> None:
        self._begun_s: dict[str, float] = {}  # by part
        self._short: Counter[tuple[str, str]] = Counter()  # by job and machine
        self._until_s: dict[tuple[str, str], float] = {}

    def begin(self, part: str) -> None:
        self._begun_s[part] = time.monotonic()

    def end(self, job: str, part: str, machine: str) -> None:
        now = time.monotonic()
        if now - self._begun_s.pop(part, -math.inf) > _STEADY_S:
            self._short.pop((job, machine), None)
            return
        self._short[job, machine] += 1
        doubled_s = _AGAIN_S * (2 ** min(self._short[job, machine] - 1, 10) - 1)
        self._until_s[job, machine] = now + min(doubled_s, _LONGEST_PAUSE_S)

    def forget(self, job: str) -> None:
        self._short = Counter({key: count for key, count in self._short.items() if key[0] != job})
        self._until_s = {key: until_s for key, until_s in self._until_s.items() if key[0] != job}
        self._begun_s = {part: begun_s for part, begun_s in self._begun_s.items() if part.partition("/")[0] != job}

    def machines(self, job: str) -> set[str]:
        now = time.monotonic()
        return {machine for (name, machine), until_s in self._until_s.items() if name == job and until_s > now}


class ElasticJobs:
    """The elastic jobs that may still run, and the parts that have joined them.

    `choose`: chooses one more machine for a job, none of these; `start`: starts a part, whose booking is made.
    """

    def __init__(
        self,
        place: Path,
        bookings: Bookings,
        machines: Machines,
        choose: Callable[[Job, AbstractSet[str]], Awaitable[Choice]],
        start: Callable[[Job, Machine, Booking], Awaitable[Handle]],
    ) -> None:
        self._waits_until = 0.0  # until then, trials wait for machines, which are theirs
        self._place = place
        self._bookings = bookings
        self._machines = machines
        self._choose = choose
        self._start = start
        self._jobs: dict[str, Job] = {}
        self._next: dict[str, int] = {}  # by job: the number of the next part
        self._at_work: set[str] = set()  # jobs that are just growing
        self._again_s: dict[str, float] = {}
        self._pauses = _Pauses()
        self._taken: set[str] = set()  # parts that drills have asked to leave

    def load(self) -> None:
        """Load what an earlier manager has noted. Raises: ServiceError if it cannot be read now."""
        try:
            with open_regular(str(self._place)) as file:
                found = json.load(file)
            for name, noted in found.items():
                job, number = _read_job(name, noted["job"]), noted["next"]
                if type(number) is not int:
                    raise ValueError("not a number")
                # The file may be an older one.
                booked = [int(part.partition("/")[2] or 0) for part, _ in self._bookings.parts(name)]
                self._jobs[name], self._next[name] = job, max(number, *(one + 1 for one in booked), 1)
        except FileNotFoundError:
            return
        except OSError as error:
            raise ServiceError(f"{self._place} cannot be read now: {describe_os_error(error)}") from error
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError, OverflowError) as error:
            log.warning("ignored the damaged notes on elastic trials in %s: %s", self._place, error)

    def __contains__(self, name: object) -> bool:
        return name in self._jobs

    def keep(self, job: Job, parts: int) -> None:
        """Note a job before its first parts are started. Raises: ServiceError if that cannot be written."""
        if nodes_of_job(job).is_elastic:
            self._jobs[job.name], self._next[job.name] = job, max(parts, self._next.get(job.name, 0))
            self._save()

    def end(self, handle: Handle) -> None:
        """End the parts of a job that has ended: the first node may have gone before they met. `remove` frees them."""
        if str(handle["job"]) not in self._jobs:
            return
        self._forget(str(handle["job"]))
        for part in self.joined(handle):
            self._machines.do_aside(self._machines.cancel(part))
        try:
            self._save()
        except ServiceError as error:  # the next manager finds that it has ended
            log.warning("%s", error)

    def _forget(self, name: str) -> None:
        del self._jobs[name]
        self._next.pop(name, None)
        self._again_s.pop(name, None)
        self._pauses.forget(name)
        self._taken = {part for part in self._taken if part.partition("/")[0] != name}

    def grow_no_more(self, handle: Handle) -> None:
        """Start no further parts of a job that is to end."""
        if str(handle["job"]) in self._jobs:
            self._again_s[str(handle["job"])] = math.inf

    def _is_over(self, name: str) -> bool:
        return name not in self._jobs or self._again_s.get(name) == math.inf

    def joined(self, handle: Handle) -> list[Handle]:
        """Return the handles of the parts that have joined the job of this handle, and may run."""
        known = {str(part["job"]) for part in parts_of(handle)}
        return [unanswered(name, one) for name, one in self._bookings.parts(str(handle["job"])) if name not in known]

    async def look_after(self, handles: Sequence[Handle], statuses: Sequence[JobStatus]) -> None:
        """Free the parts of running jobs that have ended, and start others in their place."""
        for name in [name for name in self._jobs if self._bookings.get(name) is None]:  # it could not be started
            self._forget(name)
        known = [one for one in zip(handles, statuses, strict=True) if str(one[0]["job"]) in self._jobs]
        running = [handle for handle, status in known if status.state is JobState.RUNNING]
        # A machine that does not answer holds up all of them for as long as one.
        await asyncio.gather(*map(self._free_ended, running))
        for handle in running:
            name, first = str(handle["job"]), self._machines.get(str(handle["machine"]))
            if name in self._jobs and first is not None and first.up and self._may_grow(name):
                self._at_work.add(name)
                self._machines.do_aside(self._grow(self._jobs[name], first))

    async def _free_ended(self, handle: Handle) -> None:
        known = (*parts_of(handle)[1:], *self.joined(handle))
        others = [part for part in known if self._bookings.get(str(part["job"])) is not None]
        asked = (self._machines.statuses(str(part["machine"]), [part]) for part in others)
        for part, found in zip(others, await asyncio.gather(*asked), strict=True):
            name = str(part["job"])
            if found[name].state.ended:
                self._bookings.free(name)
                self._machines.do_aside(self._machines.remove(part))
                if name not in self._taken:
                    self._pauses.end(str(handle["job"]), name, str(part["machine"]))

    def _may_grow(self, name: str) -> bool:
        now = time.monotonic()
        if name in self._at_work or now < max(self._waits_until, self._again_s.get(name, 0.0)):
            return False
        return len(self._present(name)) < nodes_of_job(self._jobs[name]).most

    def _present(self, name: str) -> list[Booking]:
        """Return the parts of a job that count: not those that the first node has given up by now."""
        return [one for _, one in self._bookings.parts(name) if self._is_heard(one.machine)]

    def _is_heard(self, key: str) -> bool:
        machine = self._machines.get(key)
        return machine is not None and machine.silent_s < LOST_S

    async def _grow(self, job: Job, first: Machine) -> None:
        """Start one more part, if a machine is free for it."""
        try:
            used = {one.machine for _, one in self._bookings.parts(job.name)}
            choice = await self._choose(job, used | self._pauses.machines(job.name))
            if self._is_over(job.name):
                return
            number, machine = self._next[job.name], self._machines[choice.key]
            self._next[job.name] += 1
            self._save()
            part = node_job(job, number, first)
            place = name_of_folder(f"{machine.root}/{job.experiment}/trials/{job.trial}/{job.attempt}", number)
            booking = Booking(choice.key, place, choice.gpus)
            self._bookings.book(part.name, booking)
            self._pauses.begin(part.name)
            log.info("%s grows: its part %d starts on %s", job.name, number, machine.title)
            await self._start(part, machine, booking)
            if self._is_over(job.name):
                await self._machines.cancel(unanswered(part.name, booking))
        except NoCapacity:
            self._wait(job.name, _AGAIN_S / 2)
        except NniliteError as error:
            self._wait(job.name, _AGAIN_S)
            log.warning("%s cannot grow now: %s", job.name, error)
        finally:
            self._at_work.discard(job.name)

    def _wait(self, name: str, seconds: float) -> None:
        """Start no further part for this many seconds."""
        if name in self._jobs:
            self._again_s[name] = max(self._again_s.get(name, 0.0), time.monotonic() + seconds)

    async def take_node(self, handle: Handle) -> None:
        """Let one node leave, but not the first one. Raises: Conflict if there is none."""
        name = str(handle["job"])
        if name not in self._jobs:
            raise Conflict("the trial has a fixed number of nodes, or has ended")
        parts = [(part, one) for part, one in self._bookings.parts(name)[1:] if part not in self._taken]
        others = [unanswered(part, one) for part, one in parts if self._is_heard(one.machine)]
        if len(others) < max(1, nodes_of_job(self._jobs[name]).fewest):
            raise Conflict("the trial has no node to spare now")
        self._wait(name, _TAKEN_S)
        part = random.choice(others)
        self._taken.add(str(part["job"]))
        await self._machines.cancel(part)

    @contextlib.contextmanager
    def give_way(self) -> Iterator[None]:
        """Leave free machines to a trial that finds too few of them."""
        try:
            yield
        except NoCapacity:
            self._waits_until = time.monotonic() + _AGAIN_S
            raise

    def _save(self) -> None:
        """Write all jobs, for the next manager. Raises: ServiceError."""
        noted: dict[str, Json] = {}
        for name, job in self._jobs.items():
            noted[name] = {"job": asdict(replace(job, spec=dict(job.spec))), "next": self._next[name]}
        try:
            write_private(str(self._place), json.dumps(noted))
        except OSError as error:
            raise ServiceError(f"{self._place} cannot be written: {describe_os_error(error)}") from error


def _read_job(name: str, fields: dict[str, Any]) -> Job:
    """Return a job that was noted under this name.

    Raises: TypeError, ValueError, OverflowError, AttributeError if it is none, or not elastic.
    """
    job = Job(**fields)
    texts, numbers = (job.name, job.experiment, job.trial), (job.attempt, job.sequence, job.gpus or 0)
    if not all(isinstance(one, str) for one in texts) or not all(type(one) is int for one in numbers):
        raise ValueError("not a job")
    if job.name != name or not nodes_of_job(job).is_elastic:
        raise ValueError("not an elastic job")
    return job
