"""The program of a worker process: it calls the user's function, and asks the search about each report.

It reads parameters, or None for the end, and writes tuples whose first item is the kind:

    ("unusable", text)              the function cannot be loaded here
    ("ready",)                      it can
    ("report", value)               an intermediate result; the answer is (verdict, text)
    ("attribute", name, value)      an attribute of the trial; the answer is the same
    ("value", value)                the function has returned
    ("stopped", verdict, text)      the function has ended by `TrialStopped`
    ("failed", text, traceback)     it has raised something else
"""

from __future__ import annotations

import json
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
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
    try:
        function = pickle.loads(objective)
    except Exception as error:  # noqa: BLE001  whatever the import of the user's modules raises
        link.send(("unusable", describe_exception(error)))
        return
    turn = threading.Lock()  # the function may have threads of its own
    report = _make_reporter(link, turn)
    arguments = [report] if takes_report else []
    # An OSError or EOFError means that the search has gone.
    try:
        link.send(("ready",))
        with attribute_setting.hand_to(_make_attribute_setter(link, turn), None if takes_report else report):
            while (parameters := link.recv()) is not None:
                link.send(_outcome(function, parameters, arguments))
    except (OSError, EOFError):
        return


def _do_nothing(*_: object) -> None:
    """Ignore SIGINT."""


def _outcome(function: Callable[..., Any], parameters: Json, arguments: list[Any]) -> tuple[str, ...]:
    try:
        return ("value", _plain(function(parameters, *arguments)))
    except TrialStopped as error:
        return ("stopped", TIME_UP if isinstance(error, TimeUp) else STOP, str(error))
    except Exception as error:  # noqa: BLE001  the user's own code: one bad trial must not end the search
        return ("failed", describe_exception(error), traceback.format_exc())


def _make_attribute_setter(link: Connection, turn: threading.Lock) -> Callable[[str, Json], None]:
    def set_attribute(name: str, value: Json) -> None:
        with turn:
            link.send(("attribute", name, _plain(value)))
            verdict, text = link.recv()
        if verdict == REFUSED:
            raise NniliteError(text)

    return set_attribute


def _make_reporter(link: Connection, turn: threading.Lock) -> Callable[[Json], None]:
    def report(value: Json) -> None:
        with turn:
            link.send(("report", _plain(value)))
            verdict, text = link.recv()
        if verdict == REFUSED:
            raise NniliteError(text)
        if verdict != GO_ON:
            raise TimeUp(text) if verdict == TIME_UP else TrialStopped(text)

    return report


def _plain(value: Any) -> Json:
    """Return the value as JSON would have it: nothing else can be sent.

    A value that is not JSON becomes a text, which does not count as a result.
    """
    try:
        return json.loads(_text(value))
    except TypeError:
        return repr(value)[:200]
