"""Refusals: an exception with a status, and the statuses of the errors that the manager raises."""

from __future__ import annotations

from http import HTTPStatus

from tornado.web import HTTPError

from nnilite._answers.backend import FencedConflict, GapConflict
from nnilite.errors import (
    CodeDirError,
    ConfigError,
    Conflict,
    NniliteError,
    NotFound,
    PluginError,
    ServiceError,
    StoreError,
    TunerError,
    explain_os_error,
)
from nnilite.records import Json
from nnilite.records.shapes import to_json


class HttpRefusal(NniliteError):
    """A request that is refused with this status and sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


_STATUSES: tuple[tuple[type[NniliteError], int], ...] = (
    (FencedConflict, 410),
    (Conflict, 409),
    (NotFound, 404),
    (ConfigError, 400),
    (CodeDirError, 400),
    (PluginError, 400),
    (TunerError, 409),  # the user's tuner has refused a new search space, for example
    (ServiceError, 503),
    (StoreError, 503),
)


def status_of(error: BaseException | None) -> int:
    """Return the HTTP status for an error; 500 for an unexpected one."""
    if isinstance(error, HttpRefusal):
        return error.status
    if isinstance(error, HTTPError):
        return error.status_code
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def body_of(error: BaseException | None, status: int) -> dict[str, Json]:
    """Return the JSON answer for an error. An unexpected one is only described in the log, as it may hold secrets."""
    if isinstance(error, GapConflict):
        return {"error": str(error), **to_json(error.answer)}
    if isinstance(error, FencedConflict):
        return {"error": str(error), "reason": str(error)}
    if isinstance(error, ConfigError):
        body: dict[str, Json] = {"error": error.message}
        if error.place.field:
            body["field"] = error.place.field
        return body
    if isinstance(error, NniliteError):
        return {"error": str(error)}
    return {"error": _sentence(status)}


def explain_to_user(error: BaseException | None) -> BaseException | None:
    """Return an unexpected error as the manager's own user may see it: messages of the disk included."""
    if not isinstance(error, OSError) or not error.strerror:
        return error
    return NniliteError(explain_os_error(error))


def _sentence(status: int) -> str:
    if status == 404:
        return "there is nothing at this address; /api/v1/openapi.json lists what there is"
    if status == 405:
        return "this address does not accept this method; the Allow header lists those that it accepts"
    if status >= 500:
        return "the manager has met an unexpected error; see its log for details"
    return HTTPStatus(status).phrase
