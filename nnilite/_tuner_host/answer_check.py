"""Checks what comes from the tuner's process, before the engine sees it.

The user's code runs in that process and can write anything to its connection, or leave a process behind that does. So
an answer is one line of JSON that carries the number of its request, and its value has the type that the request asks
for. Anything else raises WrongAnswer: the state of the process is then unknown, and a new one takes its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nnilite.records import storable
from nnilite.services.keeper_events import MAX_DEPTH, MAX_DIGITS, deeper

__all__ = ["Failure", "WrongAnswer", "read_answer", "read_words"]

_LONGEST_TEXT = 50_000
_MOST_WORDS = 500  # characters
_SHOWN = 200


class WrongAnswer(Exception):
    """The answer cannot be one to the request. The text says why."""


@dataclass(frozen=True)
class Failure:
    """The call has raised. `fatal`: it would raise again in any other process. `field`: the wrong one of the config."""

    text: str
    fatal: bool
    traceback: str
    field: str = ""


def read_answer(line: bytes, number: int, request: Mapping[str, Any]) -> Any:
    """Return the value of an answer to the request of this number, or its Failure. Raises: WrongAnswer."""
    answer = _parsed(line)
    if not isinstance(answer, dict) or type(answer.get("number")) is not int:
        raise WrongAnswer(f"its process wrote something that is not an answer: {line[:_SHOWN]!r}")
    if answer["number"] != number:
        raise WrongAnswer(f"its process gave answer {answer['number']} instead of answer {number}")
    if "error" in answer:
        return _make_failure(answer)
    if "ok" not in answer:
        raise WrongAnswer(f"its process gave an answer without a value: {line[:_SHOWN]!r}")
    value = answer["ok"]
    if request["do"] == "generate":
        return _parameters(value, len(request["ids"]))
    if request["do"] in ("open", "assess"):
        if type(value) is not bool:
            raise WrongAnswer(f"its process answered {value!r:.{_SHOWN}} instead of true or false")
    elif value is not None:
        raise WrongAnswer(f"its process answered {value!r:.{_SHOWN}} instead of null")
    return value


def read_words(line: bytes, name: str) -> str:
    """Return what a good answer says for people under this name, in its first words; "" if nothing."""
    words = json.loads(line).get(name, "")
    return storable(words[:_MOST_WORDS]) if isinstance(words, str) else ""


def _parsed(line: bytes) -> Any:
    try:
        answer = json.loads(line, parse_int=_parse_whole_number, parse_float=_number, parse_constant=_number)
    except RecursionError:
        raise WrongAnswer(f"its process wrote something that is nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:
        raise WrongAnswer(f"its process wrote something that is not JSON ({error}): {line[:_SHOWN]!r}") from None
    # The answer itself is one level, and the list of parameters another one.
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and deeper(answer, MAX_DEPTH + 2):
        raise WrongAnswer(f"its process wrote something that is nested more than {MAX_DEPTH} deep")
    return answer


def _parse_whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"it contains a whole number of more than {MAX_DIGITS} digits")
    return int(digits)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text:.{_SHOWN}} in it is not finite")
    return number


def _parameters(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise WrongAnswer(f"its process answered {value!r:.{_SHOWN}} instead of at most {most} sets of parameters")
    text = json.dumps(value, ensure_ascii=False)
    if storable(text) != text:
        raise WrongAnswer(f"its process proposed text that is not Unicode: {text!r:.{_SHOWN}}")
    return value


def _make_failure(answer: Mapping[str, Any]) -> Failure:
    text, fatal, traceback = answer["error"], answer.get("fatal"), answer.get("traceback", "")
    field = answer.get("field", "")
    if not (all(isinstance(one, str) for one in (text, traceback, field)) and type(fatal) is bool):
        raise WrongAnswer(f"its process reported an error in a wrong form: {answer!r:.{_SHOWN}}")
    return Failure(_cut_start(text), fatal, _cut_start(traceback), _cut_start(field))


def _cut_start(text: str) -> str:
    """Keep the end, which says what is wrong."""
    return storable(text if len(text) <= _LONGEST_TEXT else f"[...]{text[-_LONGEST_TEXT:]}")
