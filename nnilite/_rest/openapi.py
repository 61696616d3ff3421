"""The OpenAPI document, made from the table of routes."""

from __future__ import annotations

from collections.abc import Sequence

from nnilite import _version
from nnilite._keeper.proof import SCHEME
from nnilite._rest.auth import SESSION_HEADER, Access
from nnilite._rest.handler import RouteHandler
from nnilite._rest.route_definition import Operation, Param, Route
from nnilite._rest.schemas import COMPONENTS
from nnilite.records import Json

Object = dict[str, Json]

_MEANINGS = {
    400: "something in the request is wrong; `error` says what, `field` where",
    401: "the token is missing or wrong",
    403: "not for this host name or origin",
    404: "not found",
    409: "the present state does not allow it, or events are missing before this batch",
    410: "this attempt is fenced: a newer one has taken its place, or the experiment is over",
    411: "the body needs a Content-Length",
    413: "the body is too large",
    415: "the body must be JSON, not compressed",
    421: "the server has restarted since the page was loaded",
    426: "this address accepts only WebSocket",
    503: "not now; try again later",
}
_SCHEMES: dict[Access, list[Object]] = {
    Access.MANAGER: [{"manager": []}, {"browser": []}],
    Access.TRIAL: [{"proof": []}, {"trial": []}],
    Access.OPEN: [],
}
_ALWAYS = (400, 401, 403, 421, 503)
_WITH_BODY = (411, 413, 415)


class OpenApiHandler(RouteHandler):
    """Serves the document."""

    def get(self) -> None:
        self.send_json(self.settings["openapi"])


def document(routes: Sequence[Route], prefix: str, about: str = "One experiment.") -> Object:
    """Return the document for a server with its API below `<prefix>/api/v1`."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "nnilite",
            "version": _version.__version__,
            "description": f"{about} Times are seconds since the epoch; NaN and infinities are strings.",
        },
        "servers": [{"url": f"{prefix}/api/v1"}],
        "paths": {route.path: _path(route) for route in routes},
        "components": {"schemas": COMPONENTS, "securitySchemes": _describe_security()},
    }


def _describe_security() -> Object:
    return {
        "manager": {"type": "http", "scheme": "bearer", "description": "the manager's token"},
        "browser": {"type": "apiKey", "in": "header", "name": SESSION_HEADER, "description": "from a one-time link"},
        "proof": {"type": "http", "scheme": SCHEME, "description": "signed with the token of one job, as keepers do"},
        "trial": {
            "type": "http",
            "scheme": "bearer",
            "description": "one job's token; sign instead where you can",
        },
    }


def _path(route: Route) -> Object:
    return {method.lower(): _describe_operation(route, method, item) for method, item in route.operations.items()}


def _describe_operation(route: Route, method: str, operation: Operation) -> Object:
    described: Object = {
        "summary": operation.text,
        "operationId": _name_operation(method, route.path),
        "parameters": [_describe_param(param, "path") for param in route.params]
        + [_describe_param(param, "query") for param in operation.query]
        + _describe_job_header(route),
        "responses": _describe_responses(route, operation),
        "security": _SCHEMES[route.access],
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": operation.body}},
        }
    return described


def _name_operation(method: str, path: str) -> str:
    words = path.replace("{", "").replace("}", "").replace(".", "-").strip("/").replace("/", "-")
    return f"{method.lower()}-{words}"


def _describe_param(param: Param, place: str) -> Object:
    return {
        "name": param.wire_name,
        "in": place,
        "required": place == "path" or param.required,
        "description": param.text,
        "schema": param.schema,
    }


def _describe_job_header(route: Route) -> list[Object]:
    if route.access is not Access.TRIAL or any(param.name == "job" for param in route.params):
        return []
    text = "name of the job whose token it is"
    schema = {"type": "string"}
    return [{"name": "X-Nnilite-Job", "in": "header", "required": True, "description": text, "schema": schema}]


def _describe_responses(route: Route, operation: Operation) -> Object:
    answer = operation.answer
    success: Object = {"description": answer.text}
    if answer.schema is not None:
        success["content"] = {answer.media: {"schema": answer.schema}}
        if answer.also:
            success["content"][answer.also] = {"schema": {"type": "string"}}
    refused = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    return {
        str(answer.status): success,
        **{str(status): {"description": _MEANINGS[status], **refused} for status in list_refusals(route, operation)},
    }


def list_refusals(route: Route, operation: Operation) -> list[int]:
    """Return the error statuses an operation may answer with."""
    statuses = {*_ALWAYS, *operation.refusals}
    if route.params:
        statuses.add(404)
    if operation.writes:
        statuses.add(409)
    if operation.body is not None:
        statuses.update(_WITH_BODY)
    return sorted(statuses)
