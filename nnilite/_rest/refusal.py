"""How an answer says no: one exception with a status, and the statuses of the errors that the manager raises."""

from __future__ import annotations

from http import HTTPStatus

from tornado.web import HTTPError

from nnilite._rest import wire
from nnilite._rest.backend import Gap, GivenUp
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
)
from nnilite.records import Json


class Refusal(NniliteError):
    """A request that is refused with this status and sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


_STATUSES: tuple[tuple[type[NniliteError], int], ...] = (
    (GivenUp, 410),
    (Conflict, 409),
    (NotFound, 404),
    (ConfigError, 400),
    (CodeDirError, 400),
    (PluginError, 400),
    (TunerError, 409),  # the user's tuner refused, say, a new search space
    (ServiceError, 503),
    (StoreError, 503),
)


def status_of(error: BaseException | None) -> int:
    """The HTTP status that answers an error; 500 for those that nobody foresaw."""
    if isinstance(error, Refusal):
        return error.status
    if isinstance(error, HTTPError):
        return error.status_code
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def body_of(error: BaseException | None, status: int) -> dict[str, Json]:
    """The JSON that answers an error. What nobody foresaw is told in the log only: it may hold secrets."""
    if isinstance(error, Gap):
        return {"error": str(error), **wire.callback_answer(error.answer)}
    if isinstance(error, GivenUp):
        return {"error": str(error), "reason": str(error)}
    if isinstance(error, ConfigError):
        body: dict[str, Json] = {"error": error.message}
        if error.place.field:
            body["field"] = error.place.field
        return body
    if isinstance(error, NniliteError):
        return {"error": str(error)}
    return {"error": _sentence(status)}


def _sentence(status: int) -> str:
    if status == 404:
        return "there is nothing at this address; /api/v1/openapi.json lists what there is"
    if status == 405:
        return "this address does not take this method; the Allow header lists those it takes"
    if status >= 500:
        return "the manager met an error that it did not foresee; its log has the details"
    return HTTPStatus(status).phrase
