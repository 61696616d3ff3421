"""Modules that one machine imports once for all trials there (`preload`).

The agent's fork server has that done, again for each connection. The first time the machine gets no trial before it is
known whether it can; after a break of the connection trials need not wait: those that come too early start afresh.
"""

from __future__ import annotations

import logging
import time

from nnilite.records import Json
from nnilite.services.preloading import PRELOAD_S
from nnilite.ssh.errors import LinkLost, MachineError
from nnilite_remote._machine_session import MachineSession

log = logging.getLogger(__name__)

_FIELD = "preload"
_MESSAGE_CHARS = 1000
_MEMORY_BYTES = 1e15  # no machine has more


class MachinePreload:
    """The preloaded modules of one machine. `order` is that of `nnilite.services.preloading`; None: there are none."""

    def __init__(self, session: MachineSession, order: Json | None) -> None:
        self._session = session
        self._order = order
        self._was_done = False
        self._logged: set[Json] = set()  # kinds of events that were logged since the last order

    async def order(self) -> None:
        """Have the machine import the modules, and wait for it the first time. Raises: MachineError."""
        if self._order is None:
            return
        self._logged.clear()
        if self._was_done:
            self._session.tell("preload", order=self._order)
            return
        began_s = time.monotonic()
        try:
            answer = await self._session.ask("preload", PRELOAD_S, order=self._order)
        except LinkLost as error:
            if time.monotonic() - began_s < PRELOAD_S:
                raise
            late = f"has not imported within {PRELOAD_S:g} s what `preload` names; take out what takes so long"
            raise MachineError(late, lasting=True, field=_FIELD) from error
        except MachineError as error:
            raise MachineError(f"cannot preload: {error}", lasting=error.lasting, field=_FIELD) from error
        self._was_done = True
        self._log_memory(answer["memory"])

    def handle_event(self, event: Json) -> bool:
        """Log what the agent says unasked about preloaded modules. Return False if it is about something else.

        Each kind of event is logged once for each connection: the machine is foreign, and could fill the log.
        """
        kind = event["event"]
        if kind not in ("preloaded", "not preloaded"):
            return False
        if kind in self._logged:
            return True
        self._logged.add(kind)
        if kind == "preloaded":
            self._log_memory(event.get("memory"))
        else:
            why = str(event.get("message"))[:_MESSAGE_CHARS]
            title = self._session.title
            log.warning("on machine %s trials start without preloaded modules from now on: %s", title, why)
        return True

    def _log_memory(self, size: Json) -> None:
        is_known = isinstance(size, (int, float)) and 0 <= size < _MEMORY_BYTES
        more = f", and has {size / 1e6:.0f} MB of memory" if is_known else ""
        log.info("the preloader of machine %s is ready%s", self._session.title, more)
