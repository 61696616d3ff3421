"""Says what a user's tuner or assessor returned wrongly or declared wrongly, and how to mend it."""

from __future__ import annotations

import inspect
import re
from typing import Any

from nnilite._sdk.safe_text import safe_error_text, safe_message, safe_repr
from nnilite.assessor import Assessor, AssessResult
from nnilite.tuner import Tuner

_SIGNATURE_ERROR = re.compile(r"(\w+)\(\) (?:got|takes|missing) .*argument")


def check_proposals(answer: Any, asked: int) -> list[Any]:
    """Return what `generate_multiple_parameters` returned. Raises: TypeError if it cannot be that many parameters."""
    if not isinstance(answer, list) or len(answer) > asked:
        raise TypeError(
            f"generate_multiple_parameters must return a list of at most {asked} parameters, not {_describe(answer)}"
        )
    for one in answer:
        if one is None or inspect.iscoroutine(one) or inspect.isgenerator(one):
            raise TypeError(f"generate_parameters must return the trial's parameters, not {_describe(one)}")
    return answer


def check_verdict(answer: Any) -> bool:
    """Return whether the trial may continue by an assessor's answer. Raises: TypeError if it is none."""
    if isinstance(answer, AssessResult):
        return bool(answer.value)
    if isinstance(answer, bool):
        return answer
    raise TypeError(f"assess_trial must return AssessResult.Good or AssessResult.Bad, not {_describe(answer)}")


def describe_user_error(error: BaseException) -> str:
    """Return one sentence on an exception of the user's code, with the right signature of a method that has another."""
    text = safe_message(error)
    sentence = safe_error_text(error)
    match = _SIGNATURE_ERROR.search(text) if type(error) is TypeError else None
    method = match and (getattr(Tuner, match[1], None) or getattr(Assessor, match[1], None))
    if method is None or match is None or not callable(method):
        return sentence
    return f"{sentence}; write `def {match[1]}({', '.join(_parameters(method))})`"


def _parameters(method: Any) -> list[str]:
    marks: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [f"{marks.get(one.kind, '')}{one.name}" for one in inspect.signature(method).parameters.values()]


def _describe(value: Any) -> str:
    if value is None:
        return "None: a `return` is missing, perhaps"
    if inspect.iscoroutine(value):
        value.close()
        return "a coroutine: remove `async` from the method"
    if inspect.isgenerator(value):
        return "a generator: write `return` instead of `yield`"
    return safe_repr(value, 200)
