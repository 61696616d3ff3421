"""How trials of a search end: with a value, with an error, or stopped."""

from __future__ import annotations

from dataclasses import dataclass

from nnilite.errors import TrialStopped
from nnilite.records import Json


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


def told(error: BaseException) -> str:
    """Describe an error in words."""
    return str(error) if isinstance(error, ObjectiveFailed) else f"{type(error).__name__}: {error}"
