"""What goes wrong with calls over HTTP: the errors of `platform_http`, and how they are worded."""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import requests
import urllib3

from nnilite._logging.redaction import redact
from nnilite.errors import ConfigError, Conflict, JobRefused, NniliteError, NotFound, ServiceError

_LONGEST_RETRY_AFTER_S = 3600.0
_REPLY_CHARS = 500
_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*: .+", re.MULTILINE)


class Problem(NniliteError):
    """The error of a call."""

    status = 0
    """Of the answer; 0 if there was none."""
    reply = ""
    """The platform's own words."""


class Outage(Problem, ServiceError):
    """No answer, or none that makes sense: nothing is known."""


class Throttled(Problem, ServiceError):
    """The platform asks for patience."""

    retry_after_s = 0.0


class Untrusted(Problem, ServiceError):
    """The platform's certificate cannot be trusted."""


class AccessRefused(Problem, ServiceError):
    """The platform does not know the user, or does not let them do this."""


class Missing(Problem, NotFound):
    """The thing does not exist on the platform."""


class Contradiction(Problem, Conflict):
    """The request contradicts the present state."""


class CallRefused(Problem, JobRefused):
    """The platform will never take this request."""


class RequestTooLarge(Problem, ConfigError):
    """The request is larger than the platform accepts. That depends on the trial, unlike other refusals."""


_KINDS: Mapping[int, tuple[type[Problem], str]] = {
    401: (AccessRefused, "check that the login is right and has not expired"),
    403: (AccessRefused, "this user may not do that there"),
    404: (Missing, ""),
    408: (Outage, ""),
    409: (Contradiction, ""),
    410: (Missing, ""),
    412: (Contradiction, ""),
    416: (Missing, ""),
    413: (RequestTooLarge, "the request is larger than the platform accepts"),
    425: (Outage, ""),
    429: (Throttled, "the platform wants fewer calls"),
}


def kind_and_cure(status: int) -> tuple[type[Problem], str]:
    """Return the error for a status that is not a success, and its cure; "" where there is no general one.

    >>> kind_and_cure(429)
    (<class 'nnilite.platform_http._problems.Throttled'>, 'the platform wants fewer calls')
    """
    return _KINDS.get(status, (Outage, "") if status >= 500 else (CallRefused, ""))


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and those that it was made of."""
    known: list[BaseException] = [error]
    for each in known:
        yield each
        inner = (getattr(each, name, None) for name in ("reason", "inner_exception"))  # of urllib3, of Azure
        more = [each.__cause__, each.__context__, *inner, *each.args]
        known.extend(item for item in more if isinstance(item, BaseException) and item not in known)


def describe_error(error: BaseException) -> str:
    """Describe what went wrong, without the URL, which may hold a secret."""
    errors = list(chain(error))
    for each in errors:
        if isinstance(each, OSError) and each.strerror and not isinstance(each, requests.RequestException):
            return redact(each.strerror)
    if any(isinstance(each, (TimeoutError, urllib3.exceptions.TimeoutError, requests.Timeout)) for each in errors):
        return "it does not answer in time"
    if any(isinstance(each, urllib3.exceptions.IncompleteRead) for each in errors):
        return "the connection broke off"
    return f"the connection failed ({type(error).__name__})"


def reply(content: bytes, content_type: str) -> str:
    """Return the platform's own words, from JSON where it sends that; a page for browsers says nothing."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict):
        return _find_sentence(data)[:_REPLY_CHARS]
    if "html" in content_type:
        return ""
    text = content.decode("utf-8", "replace")
    # Of a Python traceback, which some platforms send, the last exception says what went wrong.
    errors = _EXCEPTION.findall(text) if _TRACEBACK in text else []
    return " ".join((errors[-1] if errors else text).split())[:_REPLY_CHARS]


def _find_sentence(data: dict[str, Any]) -> str:
    """Return the sentence in an error's JSON: many platforms have an object there, with the sentence in it."""
    found = next((data[name] for name in ("message", "error", "detail", "msg", "reason") if data.get(name)), "")
    return _find_sentence(found) or str(found) if isinstance(found, dict) else str(found)


def retry_after_s(value: str) -> float:
    """Return the seconds of the header, which has a number of them, or a date; 0 if it has neither."""
    try:
        seconds = float(int(value))
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(0.0, seconds), _LONGEST_RETRY_AFTER_S)
