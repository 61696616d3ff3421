"""The thread that takes events to the manager: batches, answers, heartbeats and new tries.

The trial's own thread says `notify` when files have grown and `close` at the trial's end; the courier says `cancel`,
`fenced` and `done`, and pokes the other thread. A request waits a little for more to go along with it, but not at the
end of the trial, which another trial may be waiting for.
"""

from __future__ import annotations

import os
import re
import threading
import time
from typing import Any, Callable, Dict, Optional

from .folder import Folder
from .link import Link, LinkDown, modified
from .outbox import Answer, Batch, Outbox
from .spec import Spec

_GATHER_S = 0.05  # between two requests
_GATHER_FIRST_S = 0.1  # a short trial is told by one request
_BACKOFF_S = (0.1, 10.0)
_LOOK_S = 0.2  # how often a waiting courier looks whether the manager has moved
_REFUSED_VALUE = re.compile(r"events\[(\d+)\]\.value$")


class Courier:
    """Delivers an outbox. What other threads see is set once, from False to True, but for `heard_s`."""

    def __init__(
        self,
        spec: Spec,
        folder: Folder,
        outbox: Outbox,
        link: Link,
        poke: Callable[[], None],
    ) -> None:
        self.cancel = False  # the manager wants the trial's end
        self.fenced = False  # the manager has given this attempt up and takes nothing of it any more
        self.done = False  # all is delivered, or will never be
        self.heard_s = time.monotonic()  # when the manager last answered
        self._spec = spec
        self._folder = folder
        self._outbox = outbox
        self._link = link
        self._poke = poke
        self._news = True
        self._stopped = False
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)
        self._next_request = 0.0
        self._next_heartbeat = 0.0
        self._failures = 0
        self._last_failure = ""

    def start(self) -> None:
        self._next_request = time.monotonic() + _GATHER_FIRST_S
        self._next_heartbeat = time.monotonic() + self._spec.heartbeat_s
        self._thread.start()

    def notify(self, started: Optional[Dict[str, Any]] = None) -> None:
        """There is something new; `started`: the event, once."""
        with self._condition:
            if started is not None:
                self._outbox.started = started
            self._news = True
            self._condition.notify()

    def close(self, exited: Optional[Dict[str, Any]]) -> None:
        """The trial has ended and its files are final; None: nobody knows how."""
        with self._condition:
            self._outbox.exited = exited
            self._outbox.closed = True
            self._news = True
            self._condition.notify()

    def stop(self) -> None:
        """Give up what is not delivered yet. Returns at once; the thread ends with its request."""
        with self._condition:
            self._stopped = True
            self._condition.notify()

    def _run(self) -> None:
        try:
            while self._await_work():
                if self._try(self._outbox.batch()):
                    self._failures = 0
                else:
                    self._failures += 1
                    self._back_off()
        finally:
            self.done = True
            self._poke()
        self._link.close()

    def _await_work(self) -> bool:
        """Wait for something to deliver or the next heartbeat. False: there is nothing more to do."""
        if self._outbox.complete or self.fenced:
            return False
        with self._condition:
            self._condition.wait_for(lambda: self._news or self._stopped, self._next_heartbeat - time.monotonic())
            self._condition.wait_for(
                lambda: self._outbox.closed or self._stopped, self._next_request - time.monotonic()
            )
            self._news = False
            return not self._stopped

    def _try(self, batch: Batch) -> bool:
        try:
            answer = self._link.post(batch.events)
        except LinkDown as error:
            self._note_failure(str(error))
            return False
        finally:
            now = time.monotonic()
            self._next_request = now + _GATHER_S
            self._next_heartbeat = now + self._spec.heartbeat_s
        return self._take(batch, answer)

    def _take(self, batch: Batch, answer: Answer) -> bool:
        """Whether this brought us forward."""
        self.heard_s = time.monotonic()
        if answer.cancel and not self.cancel:
            self.cancel = True
            self._poke()
        if answer.status == 200:
            arrived = self._outbox.accept(batch, answer)
            if batch.more:  # never set it to False here: the other thread may just have set it to True
                self._news = True
            return arrived
        if answer.status == 409 and answer.metrics is not None:
            self._outbox.seek(answer.metrics, answer.output)
        elif answer.status == 410:
            self._folder.note("the manager has given this attempt up: {}".format(answer.reason))
            self.fenced = True
            self._poke()
            return True
        elif answer.status == 413:
            self._outbox.shrink()
        elif answer.status == 400:
            self._leave_out(batch, answer)
        self._note_failure("the manager answers {}: {}".format(answer.status, answer.reason[:500]))
        return False

    def _leave_out(self, batch: Batch, answer: Answer) -> None:
        """One metric that the manager cannot take must not keep all others back."""
        match = _REFUSED_VALUE.match(answer.field)
        event = batch.events[int(match.group(1))] if match and int(match.group(1)) < len(batch.events) else {}
        if event.get("type") == "metric":
            value = self._outbox.give_up(event["index"])
            self._folder.note(
                "metric {} is sent as null, since the manager refuses it: {:.200}".format(event["index"], value)
            )

    def _back_off(self) -> None:
        """Wait before the next try, longer each time; less if the manager moves or the trial ends."""
        first, longest = _BACKOFF_S
        jitter = 0.5 + os.urandom(1)[0] / 510
        deadline = time.monotonic() + min(longest, first * 2 ** min(self._failures - 1, 10)) * jitter
        before = (self._outbox.closed, modified(self._spec.callback_file))
        with self._condition:
            self._news = True
            while not self._stopped and time.monotonic() < deadline:
                if (self._outbox.closed, modified(self._spec.callback_file)) != before:
                    return
                self._condition.wait(min(_LOOK_S, max(0.0, deadline - time.monotonic())))

    def _note_failure(self, text: str) -> None:
        if text != self._last_failure:
            self._last_failure = text
            self._folder.note("not delivered, will be tried again: {}".format(text))
