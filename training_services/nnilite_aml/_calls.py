"""The calls of Azure's library, whose errors become nnilite's.

All calls that are made here may be made twice: jobs, environments and snapshots have names of their own, and canceling
twice is harmless.
"""

from __future__ import annotations

import re
from typing import Any

from nnilite.platform_http import (
    AccessRefused,
    CallRefused,
    LibraryCalls,
    Outage,
    Problem,
    Throttled,
    Untrusted,
    chain,
    kind_and_cure,
    redact,
    retry_after_s,
)

_MESSAGE_CHARS = 600
# The URL opens a blob for all who have it.
_SIGNED = re.compile(r"\?[^\s'\")?]*\bsig=[^\s'\")]*")


class AzureCalls(LibraryCalls):
    """Calls of Azure's library. `cure` is what helps if the login is refused."""

    def __init__(self, timeout_s: float, cure: str) -> None:
        super().__init__("Azure", timeout_s)
        self._cure = cure

    def translate(self, what: str, error: Exception) -> Problem:
        """Translate an error of Azure's library."""
        status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
        if _is_a(error, "ClientAuthenticationError") and status in (None, 400, 401):
            return _made(
                AccessRefused, f"the login to Azure is refused ({what}): {_describe_error(error)}; {self._cure}", 401
            )
        if isinstance(status, int):
            return self._translate_status(what, status, error)
        if any("CERTIFICATE" in str(each).upper() for each in chain(error)):
            return _made(
                Untrusted,
                f"the certificate of Azure is not trusted ({what}): if a proxy replaces it, set the environment "
                "variable REQUESTS_CA_BUNDLE to the file of the proxy's authority",
            )
        if _is_a(error, "AzureError", "OSError", "RequestException"):
            return _made(Outage, f"Azure cannot be reached ({what}): {_describe_error(error)}")
        if _is_a(error, "MlException", "ValidationError"):
            return _made(CallRefused, f"Azure's library refuses {what}: {_describe_error(error)}")
        return _made(
            Outage, f"Azure's answer makes no sense ({what}): {type(error).__name__}: {_describe_error(error)}"
        )

    def _translate_status(self, what: str, status: int, error: Exception) -> Problem:
        kind, _ = kind_and_cure(status)
        cures = {
            401: self._cure,
            403: "the user who is logged in needs the role AzureML Data Scientist on the workspace",
        }
        details = "; ".join(part for part in (_describe_error(error), cures.get(status, "")) if part)
        problem = _made(kind, f"Azure answers {status} ({what}): {details}", status)
        problem.reply = _describe_error(error)
        if isinstance(problem, Throttled):
            headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
            problem.retry_after_s = retry_after_s(str(headers.get("Retry-After", "")))
        return problem


def _made(kind: type[Problem], text: str, status: int = 0) -> Problem:
    problem = kind(redact(text))
    problem.status = status
    return problem


def _is_a(error: Exception, *names: str) -> bool:
    """Return whether an error is of a class of this name: the modules of the classes take seconds to import."""
    return any(each.__name__ in names for each in type(error).__mro__)


def _describe_error(error: Exception) -> str:
    """Return the text of the error, on one line."""
    message = getattr(getattr(error, "error", None), "message", None) or getattr(error, "message", None) or str(error)
    return redact(_SIGNED.sub("?...", " ".join(str(message).split())))[:_MESSAGE_CHARS]
