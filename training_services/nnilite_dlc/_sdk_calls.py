"""The calls of Alibaba's library, whose errors become nnilite's.

Calls that may be made twice are retried. The call that makes a job is not: its caller knows what to do.
"""

from __future__ import annotations

from nnilite.platform_http import (
    AccessRefused,
    CallRefused,
    LibraryCalls,
    Missing,
    Outage,
    Problem,
    Throttled,
    Untrusted,
    kind_and_cure,
    redact,
)

_MESSAGE_CHARS = 600
_KEY_CURE = "check that accessKeyId and accessKeySecret belong together and are not disabled"
_RIGHTS_CURE = "the owner of this key needs the developer role in the workspace (AliyunPAIDLCFullAccess)"
# How the codes of Alibaba's gateway begin, whatever status they come with.
_THROTTLED = ("Throttling", "FlowControl", "ServiceUnavailable.FlowControl", "TooManyRequests")
_WRONG_KEY = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurityToken", "SecurityTokenExpired")
_UNSENT = ("NewConnectionError", "ConnectTimeoutError", "NameResolutionError")
"""Words of the library, which keeps nothing else of an error, for a connection that was not made."""
_WRONG_CLOCK = ("InvalidTimeStamp", "SignatureNonceUsed")


class DlcCalls(LibraryCalls):
    """Calls of Alibaba's library."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__("DLC", timeout_s)

    def translate(self, what: str, error: Exception) -> Problem:
        return translate_problem(what, error)


def translate_problem(what: str, error: Exception) -> Problem:
    """Translate an error of Alibaba's library."""
    status = getattr(error, "status_code", None)
    message = _describe_error(error)
    if isinstance(status, int):
        return _translate_status(what, status, str(getattr(error, "code", None) or ""), error)
    if "CERTIFICATE" in message.upper():
        return _made(
            Untrusted,
            f"the certificate of DLC is not trusted ({what}): set caCert to the PEM file of the authority that signed "
            "it, such as that of a proxy",
        )
    if "parse the value as json" in message:
        return _made(Outage, f"DLC's answer makes no sense ({what}): {message}")
    return _made(Outage, f"DLC cannot be reached ({what}): {message}; check region and endpoint")


def unsent(problem: Problem) -> bool:
    """Return whether a call has certainly not reached DLC."""
    return problem.status == 0 and any(word in str(problem) for word in _UNSENT)


def _translate_status(what: str, status: int, code: str, error: Exception) -> Problem:
    kind, cure = kind_and_cure(status)
    if code.startswith(_THROTTLED):
        kind, status = Throttled, 429
    elif code.startswith(_WRONG_KEY):
        kind, cure = AccessRefused, _KEY_CURE
    elif code.startswith(_WRONG_CLOCK):
        kind, cure = AccessRefused, "check the clock of this machine"
    elif status == 403:
        cure = _RIGHTS_CURE
    elif code.endswith("NotFound") and status < 500:
        kind = Missing
    elif status < 500 and kind not in (AccessRefused, Missing, Throttled):
        kind = CallRefused if kind is Outage else kind
    details = "; ".join(
        part for part in (f"{code}: {_describe_error(error)}" if code else _describe_error(error), cure) if part
    )
    problem = _made(kind, f"DLC answers {status} ({what}): {details}")
    problem.status, problem.reply = status, f"{code} {_describe_error(error)}"
    if isinstance(problem, Throttled):
        wait_ms = getattr(error, "retry_after", None)  # as the library itself takes it
        problem.retry_after_s = wait_ms / 1000 if isinstance(wait_ms, int) else 0.0
    return problem


def _made(kind: type[Problem], text: str) -> Problem:
    return kind(redact(text))


def _describe_error(error: Exception) -> str:
    """Return the text of the error, on one line."""
    data = getattr(error, "data", None)
    message = data.get("Message") or data.get("message") if isinstance(data, dict) else None
    return redact(" ".join(str(message or error).split()))[:_MESSAGE_CHARS]
