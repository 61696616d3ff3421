"""How trials of a search end: with a value, with an error, or stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnilite._sdk.safe_text import safe_error_text
from nnilite.errors import NniliteError, TrialStopped

if TYPE_CHECKING:
    from nnilite.records import Json, Trial


class TimeUp(TrialStopped):
    """The end of `Search.run` stops the trial."""


class ObjectiveFailed(Exception):
    """The end of a trial in another process: the error in words there, and its traceback."""

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence)
        self.__cause__ = _There(trace) if trace else None


class _There(Exception):
    """A traceback of another process, for logs and chains of errors."""

    def __str__(self) -> str:
        return f"in its worker process:\n{self.args[0]}"


@dataclass(frozen=True)
class TrialOutcome:
    value: Json = None
    error: Exception | None = None

    def fault(self) -> str:
        """Return what is equal for failures of the same kind, whatever values their texts have."""
        if self.error is None:
            return f"a result of type {type(self.value).__name__}"
        if isinstance(self.error, ObjectiveFailed):
            places = [line for line in str(self.error.__cause__).splitlines() if line.lstrip().startswith("File ")]
            return f"{str(self.error).partition(':')[0]} {places[-1:]}"
        last = self.error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        place = "" if last is None else f" {last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
        return f"{type(self.error).__name__}{place}"


def is_never_a_result(value: object, objectives: Iterable[str]) -> bool:
    """Return whether a value has the wrong form for a result, as opposed to a number that is not finite."""
    from nnilite import _number

    names = list(objectives)
    if isinstance(value, dict):
        return any(name not in value or is_never_a_result(value[name], ["default"]) for name in names)
    try:
        number = _number(value)
    except TypeError:
        number = value
    return names != ["default"] or not isinstance(number, (int, float))


def describe_exception(error: BaseException) -> str:
    """Describe an error in words."""
    return str(error) if isinstance(error, ObjectiveFailed) else safe_error_text(error)


_CURES = (
    ("'dict' object has no attribute 'suggest_", "the search space is given to Search, and the function gets a dict"),
    ("'dict' object has no attribute", "the function gets the parameters as a dict: write parameters['name']"),
    ("TrialPruned", "to end a trial early, raise nnilite.search.TrialStopped"),
    ("_take_report() ", "call report(value) alone: reports are counted, so there is no step"),
    (".report() ", "call report(value) alone: reports are counted, so there is no step"),
)


def cure_of(reason: str) -> str:
    """Return what to write, for an error that functions for other libraries raise here; "" for any other error."""
    cures = [cure for text, cure in _CURES if text in reason]
    return f"; {cures[0]}" if cures else ""


def call_back(callbacks: Iterable[Callable[[Any, Trial], object]], caller: object, trial: Trial) -> None:
    """Call the user's callbacks with a trial that has ended. Raises: NniliteError if one of them raises."""
    for callback in callbacks:
        try:
            callback(caller, trial)
        except Exception as error:
            name = getattr(callback, "__name__", type(callback).__name__)
            raise NniliteError(
                f"the callback {name} raised {safe_error_text(error)}. Trial {trial.id} is kept."
            ) from error
