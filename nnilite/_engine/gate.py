"""The one gate for all events of keepers, whether they come by callback, by folder or by the platform's log.

Should a fault have started an attempt twice, the run whose events come first owns it. The other one is fenced: none of
its events is taken, and its keeper ends it.

Two ways may bring the same events at once, so the gate takes one batch of an attempt at a time, from the first look
at its numbers to the commit. Events count as taken once they are committed and not before: if anything fails until
then, the keeper still has the batch and sends it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from weakref import WeakValueDictionary

from nnilite._engine import messages
from nnilite._engine.dedupe import Fenced, JobKey, MetricCursor, MetricCursors, NewEvents, OutputLimits, fresh
from nnilite._engine.live_trial import ActiveTrial
from nnilite.errors import ServiceError, StoreError
from nnilite.records import Attempt, KeeperEvent, Output, Trial, TrialState, Used

log = logging.getLogger(__name__)

_CANCELED = (TrialState.USER_CANCELED, TrialState.SYS_CANCELED, TrialState.EARLY_STOPPED)
_MOST_WAITING = 2
# Longer than a keeper's longest pause and the time limit of its request together.
_TROUBLE_HOLDS_S = 60.0
_OUTPUT_MARGIN_BYTES = 1 << 20
Known = tuple[Trial, Attempt, MetricCursor]
"""A trial, one of its attempts, and how much of that attempt's events was taken."""


class EventStore(Protocol):
    """What the gate needs of the store."""

    async def find_attempt(self, key: JobKey) -> Known | None:
        """Return what is known of an attempt. Raises: StoreError."""

    async def append_output(self, key: JobKey, chunks: Sequence[Output], *, sync: bool) -> None:
        """Write output to its place in the trial's folder, and with `sync` wait for the disk. Raises: StoreError."""


class GateInbox(Protocol):
    """What the gate needs of the engine."""

    def now(self) -> float: ...

    def live_trial(self, trial: str) -> ActiveTrial | None: ...

    def used(self, key: JobKey, used: Used) -> None:
        """Keep in memory what the trial uses."""

    async def commit(self, message: messages.LiveEvents | messages.LateEvents, taken: Callable[[], None]) -> bool:
        """Wait until the records are committed; `taken` is called then. Return False if the events came too late."""


@dataclass(frozen=True)
class BatchAnswer:
    """The answer to a batch of events."""

    cancel: bool
    metrics: int
    output: dict[str, int]


@dataclass(eq=False)
class _Turn:
    """The queue of batches for one attempt."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    works: set[asyncio.Task[BatchAnswer]] = field(default_factory=set)


class EventGate:
    """Checks batches of events and hands the new events to the engine."""

    def __init__(self, store: EventStore, inbox: GateInbox, output_cap_bytes: int = 0, ranks: int = 0) -> None:
        """Set up the gate.

        `output_cap_bytes`: the size to which keepers cut each stream of output; 0: they do not. `ranks`: the processes
        of a distributed trial; 0 for others.
        """
        self._trouble, self._trouble_until = "", 0.0
        self._store = store
        self._inbox = inbox
        # A stream may exceed its cap until its keeper cuts it. Who sends more than twice as much is no keeper.
        most_bytes = 2 * output_cap_bytes + _OUTPUT_MARGIN_BYTES if output_cap_bytes else None
        self._limits = OutputLimits(most_bytes, ranks)
        self.works: set[asyncio.Task[BatchAnswer]] = set()  # batches that are being taken
        self._cursors = MetricCursors()
        self._refused: set[JobKey] = set()
        self._turns: WeakValueDictionary[JobKey, _Turn] = WeakValueDictionary()

    @property
    def trouble(self) -> str:
        """Why output cannot be written, "" if it can.

        A keeper sends again what was refused. If none does for a while, its trial is gone, and the problem with it.
        """
        return self._trouble if self._inbox.now() < self._trouble_until else ""

    def begin(self, key: JobKey) -> None:
        """Note that nothing of this attempt was ever taken, so that the store need not be asked."""
        self._cursors.put(key, MetricCursor())

    async def commit_events(self, key: JobKey, events: Sequence[KeeperEvent], over_gaps: bool = False) -> BatchAnswer:
        """Commit the new ones among the events of a keeper.

        `over_gaps`: see `dedupe.fresh`. Raises: Fenced, GapFound, StoreError, ServiceError (send it again later).
        """
        turn = self._turns.setdefault(key, _Turn())
        # A keeper that gets no answer in time sends its batch again and again: not all of these need to wait in memory.
        if len(turn.works) >= _MOST_WAITING:
            raise ServiceError("earlier reports of this trial still wait for the disk")
        # Even if its caller gives up meanwhile, the next batch must wait for the commit of this one.
        work = asyncio.create_task(self._take_in_turn(turn, key, events, over_gaps))
        for works in (turn.works, self.works):
            works.add(work)
            work.add_done_callback(works.discard)
        return await asyncio.shield(work)

    async def _take_in_turn(
        self, turn: _Turn, key: JobKey, events: Sequence[KeeperEvent], over_gaps: bool
    ) -> BatchAnswer:
        async with turn.lock:
            try:
                return await self._commit_in_order(key, events, over_gaps)
            except StoreError:
                self._refused.add(key)
                raise

    def waiting(self) -> set[JobKey]:
        """Return the attempts whose reports wait for a disk of this machine, or have done so since the last call.

        Their keepers have reported, so they do not count as silent.
        """
        refused, self._refused = self._refused, set()
        return refused.union(key for key, turn in self._turns.items() if turn.works)

    async def _commit_in_order(self, key: JobKey, events: Sequence[KeeperEvent], over_gaps: bool) -> BatchAnswer:
        while True:
            known = await self._known(key)
            has_ended = known is not None
            cursor = self._cursors.get(key)
            if cursor is None:
                known = known or await self._remember(key)
                cursor = known[2]
            if not has_ended and cursor.is_superseded_by(events):
                cursor = MetricCursor()
            news = fresh(cursor, events, over_gaps, self._limits)
            # Output is written before its batch is committed. The run must be known by then, or a crash could mix two.
            if news.output and news.cursor.run != cursor.run:
                owned = NewEvents(replace(cursor, run=news.cursor.run))
                if not await self._commit(key, owned, known):
                    continue
            if news.output:
                await self._append(key, news)
            # While the output was written the trial may have ended, or another attempt may have begun.
            if await self._commit(key, news, known):
                self._tell_use(key, events)
                # The manager assumed this end, and the keeper did not report it. The trial still runs, and has to end.
                # The end of a live attempt is that of a run which could not begin: another run may prepare its start.
                cancel = (has_ended and cursor.exited) or self._is_canceled(key, known)
                return BatchAnswer(cancel, news.cursor.metrics, dict(news.cursor.output))

    def _tell_use(self, key: JobKey, events: Sequence[KeeperEvent]) -> None:
        for event in events:
            if isinstance(event, Used):
                self._inbox.used(key, event)

    async def _known(self, key: JobKey) -> Known | None:
        """Return what the store knows of an attempt whose trial is not live. Raises: Fenced."""
        live = self._inbox.live_trial(key[0])
        if live is None:
            return await self._remember(key)
        if live.trial.attempt != key[1]:
            raise Fenced
        return None

    async def _remember(self, key: JobKey) -> Known:
        known = await self._store.find_attempt(key)
        if known is None or known[0].attempt != key[1]:
            raise Fenced
        return known

    async def _append(self, key: JobKey, news: NewEvents) -> None:
        try:
            await self._store.append_output(key, news.output, sync=news.cursor.exited)
        except StoreError as error:
            if str(error) != self.trouble:
                log.error("%s", error)
            self._trouble, self._trouble_until = str(error), self._inbox.now() + _TROUBLE_HOLDS_S
            raise
        self._trouble = ""

    async def _commit(self, key: JobKey, news: NewEvents, known: Known | None) -> bool:
        """Commit the events. Return False if the trial has changed since its events were checked."""

        def taken() -> None:
            self._cursors.put(key, news.cursor)

        if self._inbox.live_trial(key[0]) is not None:
            message = messages.LiveEvents(*key, tuple(news.events), self._inbox.now(), news.missing, news.cursor.run)
            return await self._inbox.commit(message, taken)
        if known is None:
            return False
        if news.events or news.cursor.run != known[1].run:
            events = tuple(news.events)
            late = messages.LateEvents(*known[:2], events, self._inbox.now(), news.missing, news.cursor.run)
            return await self._inbox.commit(late, taken)
        taken()
        return True

    def _is_canceled(self, key: JobKey, known: Known | None) -> bool:
        """Return whether the keeper must end its trial as canceled, perhaps while its platform was unreachable."""
        live = self._inbox.live_trial(key[0])
        if live is None:
            return known is not None and known[0].state in _CANCELED
        return live.trial.attempt == key[1] and live.cancel is not None
