"""Deletes the checkpoints of ended trials that the config does not ask to keep (`checkpoint.keep` and `maxSize`).

Which trials have ended is taken from what is committed, and at a resume from the database. Whether a trial lives is
asked right before its checkpoints are set aside, which is one quick step; while it lasts, the trial is not submitted.
What is set aside is then deleted, however long that takes, and what cannot be deleted is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from nnilite._checkpoints.checkpoint_rule import CheckpointPlace, CheckpointRule, Retention
from nnilite._engine import messages
from nnilite._engine.engine import CLEANUP_S
from nnilite._engine.rules import Rules
from nnilite._loop_waits import in_thread
from nnilite.errors import NoCapacity, ServiceError
from nnilite.records import Attempt, Trial
from nnilite.service import Job
from nnilite.services.task_ends import end_tasks

log = logging.getLogger(__name__)

T = TypeVar("T")

LAST_S = 10.0  # how long the end of the manager waits for what is still to be deleted
_PAUSE_S = (1.0, 60.0)
_MOST_PASSES = 3
_MOST_LOGGED = 10
_SLOW_S = 60.0  # for what takes longer, nothing else waits
_MOST_SLOW = 8


class Blocking(Protocol):
    """Runs blocking calls, like `in_thread`."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


class CheckpointTidier:
    """Tidies up one place that holds checkpoints. `ended`: trials that ended before, and their latest attempts."""

    def __init__(
        self,
        rules: Rules,
        rule: CheckpointRule,
        place: CheckpointPlace,
        ended: Iterable[tuple[str, int]] = (),
        blocking: Blocking = in_thread,
    ) -> None:
        self._rules = rules
        self._rule = rule
        self._place = place
        self._blocking = blocking
        # The ended trials by the time of their end, with the number of their latest attempt.
        self._ended = dict(ended)
        # Those for which the place has not been asked yet.
        self._unseen = tuple(self._ended)
        # The trials to look at. Each reason to do so is an object of its own, so that one which comes during a look
        # leads to another look.
        self._due: dict[str, object] = {}
        # What ended trials have here, in bytes; known with `maxSize` only.
        self._sizes: dict[str, int] = {}
        self._may_be_large = True
        self._best = self._find_best()
        self._held: dict[asyncio.Future[None], str] = {}
        self._slow: dict[str, asyncio.Future[Any]] = {}  # by trial, work that continues although no caller waits for it
        self._failures = 0
        self._logged: set[str] = set()
        self._wake = asyncio.Event()

    def holds(self, trial: str) -> bool:
        """Return whether the trial must not start now, because its checkpoints are being set aside."""
        return trial in self._held.values()

    def committed(self, records: Sequence[messages.Record]) -> None:
        """Note which trials have ended, and which run again."""
        for record in records:
            if isinstance(record, messages.SaveTrial):
                self._note(record.trial)
            # An attempt that was given up may have saved something until its platform ended it.
            elif isinstance(record, messages.SaveRemoval) and not record.pending:
                self._look_at(record.trial)
        before, self._best = self._best, self._find_best()
        if before is not None and before != self._best:
            self._look_at(before)

    async def run(self, over: asyncio.Event) -> None:
        """Tidy up until `over`, and then what is left, for some seconds."""
        working, stopping = asyncio.create_task(self._work(over)), asyncio.create_task(over.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            self._wake.set()
            await asyncio.wait([working], timeout=LAST_S)
            if working.done():
                working.result()
            left = len({*self._unseen, *self._due})
            if left:
                what = "%s: checkpoints of %d trials may still have to be deleted; a resume deletes them"
                log.warning(what, self._place.title, left)
        finally:
            await end_tasks([working, stopping], CLEANUP_S)

    async def tidy_up(self) -> None:
        """Do what is due. Raises: OSError or ServiceError at the first failure; that and the rest stay due."""
        if self._unseen:
            for trial in await self._blocking(partial(self._place.holding, self._unseen)):
                self._look_at(trial)
            self._unseen = ()
        for trial in tuple(self._due):
            await self._tidy(trial)
        if self._rule.max_bytes is not None and self._may_be_large:
            self._may_be_large = False
            try:
                await self._shrink(self._rule.max_bytes)
            except BaseException:
                self._may_be_large = True
                raise

    async def _work(self, over: asyncio.Event) -> None:
        while True:
            last = over.is_set()
            self._wake.clear()
            try:
                await self.tidy_up()
                self._failures = 0
                self._logged.clear()
            except (OSError, ServiceError) as error:
                self._failures += 1
                self._log_once(f"{error}; it is tried again")
            if last:
                return
            if self._failures:
                first_s, longest_s = _PAUSE_S
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(over.wait(), min(first_s * 2.0 ** (self._failures - 1), longest_s))
            else:
                await self._wake.wait()

    def _log_once(self, trouble: str) -> None:
        """Log a problem once, until all is well again."""
        if trouble not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(trouble)
            log.warning("%s: checkpoints cannot be tidied up: %s", self._place.title, trouble)

    def _find_best(self) -> str | None:
        return self._rules.best.id if self._rules.best else None

    def _note(self, trial: Trial) -> None:
        known = self._ended.pop(trial.id, None)
        if trial.state.ended:
            self._ended[trial.id] = trial.attempt
            self._look_at(trial.id)
        elif known is not None:
            self._due.pop(trial.id, None)
            self._sizes.pop(trial.id, None)

    def _look_at(self, trial: str) -> None:
        if trial in self._ended:
            self._due[trial] = object()
            self._wake.set()

    async def _tidy(self, trial: str, whole: bool = False) -> None:
        """Apply the rule to an ended trial, or delete what it has here as a whole. Raises: OSError, ServiceError."""
        reason, attempt = self._due.get(trial), self._ended.get(trial)
        if attempt is None:
            return
        retention = Retention.NOTHING if whole else self._rule.retention(trial, self._best)
        try:
            self._check_slow(trial)
            await self._clear(trial, attempt, retention)
            if self._rule.max_bytes is not None:
                self._sizes[trial] = await self._size(trial, attempt)
                # Not when it becomes due: that may be while the others are summed up without it.
                self._may_be_large = self._may_be_large or not whole
        except ValueError as error:
            self._log_once(f"{error}; it is left as it is")
        except (OSError, ServiceError):
            # The others come first the next time.
            if trial in self._due:
                self._due[trial] = self._due.pop(trial)
            raise
        if self._due.get(trial) is reason:
            self._due.pop(trial, None)

    async def _clear(self, trial: str, attempt: int, retention: Retention) -> None:
        for _ in range(_MOST_PASSES):
            deletion = await self._within(trial, self._blocking(partial(self._place.look, trial, attempt, retention)))
            # It may have been run again meanwhile, or even have ended again.
            if deletion is None or trial in self._rules.live or self._ended.get(trial) != attempt:
                return
            setting_aside = asyncio.ensure_future(self._blocking(deletion.set_aside))
            self._held[setting_aside] = trial
            setting_aside.add_done_callback(self._held.pop)
            await self._within(trial, setting_aside)
            await self._within(trial, self._blocking(deletion.delete))
        raise ServiceError(f"those of trial {trial} change while they are deleted")

    async def _within(self, trial: str, work: Awaitable[T]) -> T:
        """Wait for work on a trial.

        Raises: ServiceError if it is slow; the work then continues in the background.
        """
        working = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait([working], timeout=_SLOW_S)
        except asyncio.CancelledError:
            # A cancellation of this task does not end that step.
            if working not in self._held:
                working.cancel()
            raise
        if not done:
            self._slow[trial] = working
            # No caller waits for its result any more.
            working.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise ServiceError(f"those of trial {trial} take longer than {_SLOW_S:.0f} s; others come first")
        return working.result()

    def _check_slow(self, trial: str) -> None:
        """Refuse further work for a trial while earlier work on it is slow. Raises: ServiceError."""
        self._slow = {name: working for name, working in self._slow.items() if not working.done()}
        if trial in self._slow:
            raise ServiceError(f"those of trial {trial} are still being looked at or deleted")
        if len(self._slow) >= _MOST_SLOW:
            raise ServiceError(f"those of {len(self._slow)} trials are still being looked at or deleted")

    async def _size(self, trial: str, attempt: int) -> int:
        try:
            return await self._within(trial, self._blocking(partial(self._place.size, trial, attempt)))
        except ValueError as error:
            self._log_once(f"{error}; it does not count for maxSize")
            return 0

    async def _shrink(self, max_bytes: int) -> None:
        """Delete the checkpoints of ended trials until the rest fits; those of the best trial go last."""
        total = sum(self._sizes.values())
        for trial, live in tuple(self._rules.live.items()):
            total += await self._size(trial, live.trial.attempt)
        for trial in sorted(self._ended, key=lambda trial: trial == self._best):
            size = self._sizes.get(trial, 0)
            if total > max_bytes and size:
                await self._tidy(trial, whole=True)
                if self._sizes.get(trial) == 0:
                    total -= size
                    log.info(
                        "%s: checkpoints of trial %s deleted: all are larger than maxSize", self._place.title, trial
                    )


async def keep_tidy(tidiers: Sequence[CheckpointTidier], over: asyncio.Event) -> None:
    """Tidy up until `over`, and for some seconds more."""
    await asyncio.gather(*(tidier.run(over) for tidier in tidiers))


def make_after_tidying(
    tidiers: Sequence[CheckpointTidier], make: Callable[[Trial, Attempt], Job]
) -> Callable[[Trial, Attempt], Job]:
    """Wrap `make` so that a trial whose checkpoints are being set aside has to wait: the result raises NoCapacity."""

    def made(trial: Trial, attempt: Attempt) -> Job:
        if any(tidier.holds(trial.id) for tidier in tidiers):
            raise NoCapacity("waiting until its old checkpoints are tidied up (checkpoint.keep)")
        return make(trial, attempt)

    return made
