"""NNI's `st_callback`, which a tuner calls to send a trial before it returns, or later, when it has received a result.

NNI passes it to `generate_multiple_parameters`, and by that to `generate_parameters`, as a function of a parameter id
and parameters. A tuner that has no trial for an id now keeps both, and sends the trial from `receive_trial_result` or
`trial_end`. It is asked once for each id, and owes a trial for those that it has not answered.

nnilite asks for trials, and never gets one unasked. So what a tuner sends is handed out when the next ones are asked
for, which is after each result, and ids that it owes are not asked for again. A trial may thus go out by another number
than the tuner knows it by: the tuner's own ids stay within `LaterTrials`.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Iterator
from types import CodeType
from typing import Any

from nnilite.errors import NoMoreTrialError
from nnilite.tuner import Tuner

__all__ = ["LaterTrials", "wants_callback"]

log = logging.getLogger("tuner")

_NAME = "st_callback"


def wants_callback(tuner: Tuner) -> bool:
    """Return whether the code of a tuner's own classes names `st_callback`.

    Other tuners never get it, and need not accept it. An advisor has trials that are sent later by other means.
    """
    if hasattr(tuner, "hear_intermediate"):
        return False
    classes = [each for each in type(tuner).__mro__ if not issubclass(Tuner, each)]
    members = [inspect.unwrap(member) for each in classes for member in vars(each).values() if callable(member)]
    return any(_names(member.__code__) for member in members if isinstance(getattr(member, "__code__", None), CodeType))


def _names(code: CodeType) -> bool:
    inner: Iterator[CodeType] = (one for one in code.co_consts if isinstance(one, CodeType))
    return _NAME in (*code.co_varnames, *code.co_names, *code.co_consts) or any(_names(one) for one in inner)


class LaterTrials(Tuner):
    """Makes a tuner that may send its trials later look like one that has them when it is asked."""

    def __init__(self, tuner: Tuner) -> None:
        self._tuner = tuner
        self._customized = tuner._customized
        self._next = 0  # the tuner's next id
        self._sent: deque[tuple[int, Any]] = deque()
        self._owed: set[int] = set()
        self._ids: dict[int, int] = {}  # for trials under way: from their number here to the tuner's id

    # ------------------------------------------------------------ trials

    def generate_multiple_parameters(self, parameter_id_list: list[int], **kwargs: Any) -> list[Any]:
        """Return what the tuner has sent, and what it has when it is asked for the rest."""
        wanted = len(parameter_id_list) - len(self._sent) - len(self._owed)
        if wanted > 0:
            self._ask(wanted)
        return [self._hand_out(number) for number in parameter_id_list[: len(self._sent)]]

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        """Return the same for one id. Raises: NoMoreTrialError if nothing was sent."""
        found = self.generate_multiple_parameters([parameter_id])
        if not found:
            raise NoMoreTrialError("the tuner has no trial now")
        return found[0]

    def _hand_out(self, number: int) -> Any:
        self._ids[number], parameters = self._sent.popleft()
        return parameters

    def _ask(self, wanted: int) -> None:
        if type(self._tuner).generate_multiple_parameters is not Tuner.generate_multiple_parameters:
            ids = [self._make_id() for _ in range(wanted)]
            try:
                found = self._tuner.generate_multiple_parameters(ids, st_callback=self._send)
            except NoMoreTrialError:
                return
            if not isinstance(found, list) or len(found) > wanted:
                raise TypeError(f"generate_multiple_parameters must return a list of at most {wanted} parameters")
            for own_id, parameters in zip(ids, found, strict=False):
                self._send(own_id, parameters)
            return
        for _ in range(wanted):
            own_id = self._make_id()
            try:
                self._send(own_id, self._tuner.generate_parameters(own_id, st_callback=self._send))
            except NoMoreTrialError:
                return

    def _make_id(self) -> int:
        own_id, self._next = self._next, self._next + 1
        self._owed.add(own_id)
        return own_id

    def _send(self, parameter_id: int, parameters: Any) -> None:
        """Accept a trial: a tuner calls this as `st_callback`."""
        self._owed.discard(parameter_id)
        self._sent.append((parameter_id, parameters))

    # ------------------------------------------------------------ what the tuner learns

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **kwargs: Any) -> None:
        own_id = self._own(parameter_id)
        if own_id is not None or parameter_id is None:
            self._tuner.receive_trial_result(own_id, parameters, value, **kwargs)

    def trial_end(self, parameter_id: int | None, success: bool, **kwargs: Any) -> None:
        own_id = self._own(parameter_id)
        if own_id is not None or parameter_id is None:
            self._tuner.trial_end(own_id, success, **kwargs)
        if parameter_id is not None:
            self._ids.pop(parameter_id, None)

    def _own(self, number: int | None) -> int | None:
        if number is not None and number not in self._ids:
            # Asked for the same again after a crash, a tuner without a seed had nothing at this point.
            log.warning("the tuner does not know the trial with parameter id %d, and does not get its result", number)
        return None if number is None else self._ids.get(number)

    def update_search_space(self, search_space: Any) -> None:
        self._tuner.update_search_space(search_space)

    def import_data(self, data: Any) -> None:
        self._tuner.import_data(data)

    def load_checkpoint(self) -> None:
        self._tuner.load_checkpoint()

    def save_checkpoint(self) -> None:
        self._tuner.save_checkpoint()

    def _on_exit(self) -> None:
        self._tuner._on_exit()

    def _on_error(self) -> None:
        self._tuner._on_error()
