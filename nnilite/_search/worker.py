"""The program of a worker process: it calls the user's function, and asks the search about each report.

It reads these tuples, or None for the end:

    ("call", parameters)
    ("answer", number, verdict, text)   to the question with this number

and writes tuples whose first item is the kind:

    ("unusable", text)                  the function cannot be loaded here
    ("ready",)                          it can
    ("report", number, value)           a question: an intermediate result
    ("attribute", number, name, value)  a question: an attribute of the trial
    ("value", value)                    the function has returned
    ("stopped", verdict, text)          the function has ended by `TrialStopped`
    ("failed", text, traceback)         it has raised something else
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from nnilite import _text
from nnilite._sdk import attribute_setting
from nnilite._search.outcomes import TimeUp, describe_exception
from nnilite.errors import NniliteError, TrialStopped
from nnilite.records import Json

GO_ON, STOP, TIME_UP, REFUSED = "go on", "stop", "time is up", "refused"
"""The verdicts on a report. With the last, the search has not taken it; the text says why."""


def work(link: Connection, objective: bytes, takes_report: bool) -> None:
    """Serve until the search says that it is over, or has gone."""
    # A handler, and not SIG_IGN, which programs that the function starts would inherit. Ctrl-C is for the search.
    signal.signal(signal.SIGINT, _do_nothing)
    # A program that blocks signals, to wait for them, passes its mask on; the search could not end this process then.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    try:
        function = pickle.loads(objective)
    except Exception as error:  # noqa: BLE001  whatever the import of the user's modules raises
        link.send(("unusable", describe_exception(error)))
        return
    client = _SearchClient(link)
    arguments = [client.report] if takes_report else []
    # An OSError or EOFError means that the search has gone.
    try:
        link.send(("ready",))
        with attribute_setting.hand_to(client.set_attribute, None if takes_report else client.report):
            while (call := client.wait_for_call()) is not None:
                link.send(_outcome(function, call, arguments))
    except (OSError, EOFError):
        return


class _SearchClient:
    """Asks the search what the function wants to know or to say.

    The function may report from threads of its own, and signal handlers may report while it does, or end its report by
    an exception, as a time limit by SIGALRM does. So answers are read by a thread, which no signal interrupts, and
    belong to a question by its number.
    """

    def __init__(self, link: Connection) -> None:
        self._link = link
        self._process = os.getpid()
        self._turn = threading.RLock()
        self._numbers = count()
        self._calls: SimpleQueue[tuple[Json] | None] = SimpleQueue()
        self._answers: dict[int, SimpleQueue[tuple[str, str] | None]] = {}
        threading.Thread(target=self._read, daemon=True, name="nnilite-search").start()

    def wait_for_call(self) -> tuple[Json] | None:
        """Return the parameters of the next call, as a tuple; None if the search is over or has gone."""
        return self._calls.get()

    def report(self, value: Json) -> None:
        verdict, text = self._ask("report", _plain(value))
        if verdict != GO_ON:
            raise TimeUp(text) if verdict == TIME_UP else TrialStopped(text)

    def set_attribute(self, name: str, value: Json) -> None:
        self._ask("attribute", name, _plain(value))

    def _ask(self, kind: str, *parts: Json) -> tuple[str, str]:
        """Return the verdict and its reason. Raises: NniliteError if it is REFUSED; OSError, EOFError."""
        if os.getpid() != self._process:
            raise NniliteError("a process that the function has forked cannot report: let the function itself report")
        number = next(self._numbers)
        answers = self._answers[number] = SimpleQueue()
        try:
            with self._turn:
                self._link.send((kind, number, *parts))
            answer = answers.get()
        finally:
            self._answers.pop(number, None)
        if answer is None:
            raise EOFError("the search has gone")
        if answer[0] == REFUSED:
            raise NniliteError(answer[1])
        return answer

    def _read(self) -> None:
        try:
            while (message := self._link.recv()) is not None:
                if message[0] == "call":
                    self._calls.put(message[1:])
                elif (waiting := self._answers.get(message[1])) is not None:
                    waiting.put(message[2:])
        except (OSError, EOFError):
            # In this order: who begins to ask now finds the connection closed.
            self._link.close()
            for waiting in list(self._answers.values()):
                waiting.put(None)
        self._calls.put(None)


def _do_nothing(*_: object) -> None:
    """Ignore SIGINT."""


def _outcome(function: Callable[..., Any], call: tuple[Json], arguments: list[Any]) -> tuple[str, ...]:
    try:
        return ("value", _plain(function(*call, *arguments)))
    except TrialStopped as error:
        return ("stopped", TIME_UP if isinstance(error, TimeUp) else STOP, str(error))
    except Exception as error:  # noqa: BLE001  the user's own code: one bad trial must not end the search
        return ("failed", describe_exception(error), traceback.format_exc())


def _plain(value: Any) -> Json:
    """Return the value as JSON would have it: nothing else can be sent.

    A value that is not JSON becomes a text, which does not count as a result.
    """
    try:
        return json.loads(_text(value))
    except TypeError:
        return repr(value)[:200]
