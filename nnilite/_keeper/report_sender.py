"""The thread that takes events to the manager: batches, answers, heartbeats and new tries.

The main thread calls `notify` when files have grown and `close` at the trial's end. The sender sets `cancel`, `fenced`
and `done`, and wakes the main thread. A request waits a little to collect more events, but not at the end of the
trial, since another trial may be waiting for that.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional

from .command_start import NO_PROCESS_CURE
from .folder import Folder
from .link import LinkDown, RestLink, modified
from .outbox import Batch, ManagerAnswer, Outbox, exit_event, start_event
from .spec import Spec

if TYPE_CHECKING:
    from .link_choice import Link
    from .output import OutputFile
    from .resource_usage import TrialMeter

_GATHER_S = 0.05  # the pause between two requests
_GATHER_FIRST_S = 0.25  # long enough to report a short trial by one request
_BACKOFF_S = (0.1, 10.0)
_LONGEST_LOOK_S = 5.0  # a longer time between two looks means that the process was stopped
_MEASURED_FROM_S = 5.0  # shorter trials are not measured
_LOOK_S = 0.2  # how often a waiting sender looks whether the manager has moved


class ReportSender:
    """Delivers an outbox. The attributes that other threads read are set once, from False to True."""

    def __init__(
        self,
        spec: Spec,
        folder: Folder,
        outbox: Outbox,
        link: Link,
        poke: Callable[[], None],
    ) -> None:
        self.cancel = False  # the manager has canceled the attempt
        self.fenced = False  # the manager accepts no more events of this attempt
        self.done = False  # everything is delivered, or never will be
        self._spec = spec
        self._folder = folder
        self.outbox = outbox
        self._link = link
        self._poke = poke
        self._news = True
        self._stopped = False
        self._asked = 0  # how often `ask` was called
        self._confirmed = 0  # up to which of these calls the manager has what was reported
        self._condition = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        self._next_request = 0.0
        self._next_heartbeat = 0.0
        self._failures = 0
        self._last_failure = ""
        self._silent_s = 0.0
        self._looked = time.monotonic()
        self._process: Optional[Dict[str, Any]] = None  # what is measured, and since when
        self._process_began = 0.0
        self._meter: Optional[TrialMeter] = None

    def start(self) -> None:
        """Start the delivery, unless it is at work. A machine without room for a thread now may have some later."""
        if self._thread is not None:
            return
        self._next_request = time.monotonic() + _GATHER_FIRST_S
        self._next_heartbeat = time.monotonic() + self._spec.heartbeat_s
        thread = threading.Thread(target=self._run, name="report-sender", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._note_failure("reports wait, since {}{}".format(error, NO_PROCESS_CURE))
        else:
            self._thread = thread

    def notify(self, started: Optional[Dict[str, Any]] = None) -> None:
        """Note that there may be new events. `started` is the record of the start, handed over once."""
        with self._condition:
            if started is not None:
                self.outbox.started = start_event(started)
            self._news = True
            self._condition.notify_all()

    def ask(self) -> int:
        """Request that all reports of this moment are delivered now. Return a number for `is_confirmed`."""
        with self._condition:
            self._asked += 1
            self._news = True
            self._condition.notify_all()
            return self._asked

    def is_confirmed(self, number: int, limit_s: float) -> bool:
        """Return whether the manager has what was reported before that call of `ask`; wait for it up to the limit."""
        with self._condition:
            return self._condition.wait_for(lambda: self._confirmed >= number, limit_s)

    def measure(self, process: Dict[str, Any]) -> None:
        """Begin to send with other events what this process (see `process.identity`) and its descendants use.

        A log is read later, so nothing of that is printed to one.
        """
        if isinstance(self._link, RestLink):
            self._process, self._process_began = process, time.monotonic()

    def close(self, exited: Optional[Dict[str, Any]], files: Mapping[str, OutputFile]) -> None:
        """Note that the trial has ended and its files are final.

        `exited`: the record of the end, if there is one. `files`: further streams that are sent now, by their names.
        """
        with self._condition:
            self.outbox.last_files = dict(files)
            self.outbox.exited = exit_event(exited) if exited else None
            self.outbox.closed = True
            self._news = True
            self._condition.notify_all()

    def stop(self) -> None:
        """Abandon undelivered events. Return at once; the thread ends after its current request."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def silence_s(self) -> float:
        """Return for how long the manager has not answered. This must be called every few seconds.

        Time in which this process was stopped does not count, since no answer could reach it then.
        """
        now = time.monotonic()
        self._silent_s += min(now - self._looked, _LONGEST_LOOK_S)
        self._looked = now
        return self._silent_s

    def _run(self) -> None:
        try:
            self._prepare()
            while self._await_work():
                if self._deliver():
                    self._failures = 0
                else:
                    self._failures += 1
                    self._back_off()
        finally:
            self.done = True
            self._poke()
        self._link.close()

    def _prepare(self) -> None:
        """Connect while the trial runs, since another trial may be waiting for its end."""
        try:
            self._link.prepare()
        except LinkDown:  # the first delivery reports it, and tries again
            return

    def _await_work(self) -> bool:
        """Wait for events to deliver or the next heartbeat. Return False if there is nothing more to do."""
        if self.outbox.complete or self.fenced:
            return False
        with self._condition:
            self._condition.wait_for(lambda: self._news or self._stopped, self._next_heartbeat - time.monotonic())
            self._condition.wait_for(lambda: self.outbox.closed or self._stopped, self._next_request - time.monotonic())
            self._news = False
            return not self._stopped

    def _deliver(self) -> bool:
        """Send a batch. Return whether it has made progress."""
        asked = self._asked  # before the files are read
        try:
            batch = self.outbox.batch()
        except OSError as error:
            self._note_failure("the trial's files cannot be read: {}".format(error))
            return False
        arrived = self._try(batch)
        if arrived and batch.drained and not self.fenced:
            with self._condition:
                self._confirmed = asked
                self._condition.notify_all()
        return arrived

    def _try(self, batch: Batch) -> bool:
        try:
            answer = self._link.post(batch.events + self._used())
        except LinkDown as error:
            self._note_failure(str(error))
            return False
        finally:
            now = time.monotonic()
            self._next_request = now + _GATHER_S
            self._next_heartbeat = now + self._spec.heartbeat_s
        return self._handle_answer(batch, answer)

    def _used(self) -> List[Dict[str, Any]]:
        """Return what the trial uses, as an event, if it is time to report it."""
        lived_s = time.monotonic() - self._process_began
        if self._process is None or self.outbox.closed or lived_s < _MEASURED_FROM_S:
            return []
        try:
            if self._meter is None:
                from .resource_usage import TrialMeter  # few trials run for this time

                began, env = self._process_began, self._spec.env
                self._meter = TrialMeter(self._process["pid"], self._process["start"], env, began)
            found = self._meter.read()
        # /proc may not be listed while too many files are open, and the keeper's own file may have been removed by now.
        except (OSError, ImportError, ValueError) as error:
            self._process = None
            self._folder.add_to_log("cannot measure what the trial uses: {}".format(error))
            return []
        return [] if found is None else [dict(found, run=self.outbox.run)]

    def _handle_answer(self, batch: Batch, answer: ManagerAnswer) -> bool:
        """Take the manager's answer to a batch. Return whether it has made progress."""
        self._silent_s = 0.0
        if answer.cancel and not self.cancel:
            self.cancel = True
            self._poke()
        if answer.status == 200:
            arrived = self.outbox.accept(batch, answer)
            # It is never set to False here, since the other thread may just have set it to True.
            if batch.more:
                self._news = True
            return arrived
        if answer.status == 409 and answer.metrics is not None:
            self.outbox.seek(answer.metrics, answer.output)
        elif answer.status == 410:
            self._folder.add_to_log("the manager has given this attempt up: {}".format(answer.reason))
            self.fenced = True
            self._poke()
            return True
        elif answer.status == 400:
            self._process = None  # an older manager does not know that event, and must not refuse others for it
        elif answer.status == 413:
            self.outbox.shrink()
        self._note_failure("the manager answers {}: {}".format(answer.status, answer.reason[:500]))
        return False

    def _back_off(self) -> None:
        """Wait before the next try, longer each time; less if the manager moves or the trial ends."""
        first, longest = _BACKOFF_S
        jitter = 0.5 + os.urandom(1)[0] / 510
        deadline = time.monotonic() + min(longest, first * 2 ** min(self._failures - 1, 10)) * jitter
        before = (self.outbox.closed, modified(self._spec.callback_file))
        with self._condition:
            self._news = True
            while not self._stopped and time.monotonic() < deadline:
                if (self.outbox.closed, modified(self._spec.callback_file)) != before:
                    return
                self._condition.wait(min(_LOOK_S, max(0.0, deadline - time.monotonic())))

    def _note_failure(self, text: str) -> None:
        if text != self._last_failure:
            self._last_failure = text
            self._folder.add_to_log("not delivered, will be tried again: {}".format(text))
