"""The table of the hub's routes below /api/v1."""

from __future__ import annotations

from nnilite._hub.handlers import (
    HubCheckHandler,
    HubComparisonHandler,
    HubConfigHandler,
    HubExamplesHandler,
    HubExperimentHandler,
    HubExperimentsHandler,
    HubHandler,
    HubOpenHandler,
    HubResumeHandler,
    HubStopHandler,
    HubVersionHandler,
)
from nnilite._rest import schemas as s
from nnilite._rest.openapi import OpenApiHandler
from nnilite._rest.page_preference_handlers import PAGE_PREFERENCE_ROUTES
from nnilite._rest.route_definition import Operation, Param, Response, Route, Schema
from nnilite._rest.session_handlers import SESSION_ROUTES

CONFIG_MAX = 1024 * 1024  # bytes of a body with a configuration
BODY_MAX = 256 * 1024

_ID = Param("id", {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"}, "id of the experiment")
_DRAFT = s.record(text=s.TEXT, folder={**s.TEXT, "description": "to which paths in the text are relative"})
_FAULT = s.record(**dict.fromkeys(("line", "field", "file", "message"), s.ANYTHING))
_REMARKS = s.record(name=s.TEXT, tags=s.array(s.TEXT), note=s.TEXT, revision=s.COUNT)


def _get(text: str, schema: Schema, *query: Param, refusals: tuple[int, ...] = ()) -> dict[str, Operation]:
    return {"GET": Operation(text, Response(text, schema), query, refusals=refusals)}


def _post(text: str, schema: Schema, body: Schema = s.EMPTY, status: int = 200) -> dict[str, Operation]:
    return {"POST": Operation(text, Response(text, schema, status=status), body=body, refusals=(404, 409))}


def _act(name: str, handler: type[HubHandler], operations: dict[str, Operation]) -> Route:
    """Return a route for an action on one experiment."""
    return Route(f"/experiments/{{id}}/{name}", handler, operations, (_ID,), body_max=BODY_MAX)


_NEW = _post("Start an experiment", s.record(id=s.TEXT), _DRAFT, 201)
_ONE = {
    "PUT": Operation(
        "Change name, tags and note of that revision",
        Response("the new revision", s.record(revision=s.COUNT)),
        body=_REMARKS,
        refusals=(404, 409),
    ),
    "DELETE": Operation(
        "Delete a stopped experiment with all its files",
        Response("its id", s.record(deleted=s.TEXT)),
        refusals=(404, 409),
    ),
}
_COMPARISON = _get(
    "The best results of experiments over their trials",
    s.record(experiments=s.array(s.OBJECT)),
    Param("id", s.array(s.TEXT), "id of an experiment, once for each"),
    Param("objective", {"type": "string", "default": ""}, "which one; without it the first one of each experiment"),
    refusals=(404,),
)

ROUTES = (
    Route("/version", HubVersionHandler, _get("The version", s.record(version=s.TEXT, experiment=s.TEXT))),
    Route(
        "/experiments",
        HubExperimentsHandler,
        {**_get("All experiments", s.record(experiments=s.array(s.OBJECT))), **_NEW},
        body_max=CONFIG_MAX,
    ),
    Route("/experiments/{id}", HubExperimentHandler, _ONE, (_ID,), body_max=BODY_MAX),
    Route(
        "/experiments/{id}/config",
        HubConfigHandler,
        _get("Its configuration, to start another one from it; secrets are hidden", _DRAFT, refusals=(404, 409)),
        (_ID,),
    ),
    Route(
        "/examples", HubExamplesHandler, _post("Start an example", s.record(id=s.TEXT), status=201), body_max=BODY_MAX
    ),
    _act("open", HubOpenHandler, _post("The address of its page, with a sign-in", s.record(url=s.TEXT))),
    _act("resume", HubResumeHandler, _post("Resume it", s.record(resumed=s.TEXT))),
    _act("stop", HubStopHandler, _post("Ask it to stop", s.record(stopping=s.TEXT), status=202)),
    Route("/comparison", HubComparisonHandler, _COMPARISON),
    Route(
        "/checks",
        HubCheckHandler,
        _post(
            "What is wrong with a configuration",
            s.record(faults=s.array(_FAULT), warnings=s.array(s.TEXT)),
            _DRAFT,
        ),
        body_max=CONFIG_MAX,
    ),
    *PAGE_PREFERENCE_ROUTES,
    *SESSION_ROUTES,
    Route("/openapi.json", OpenApiHandler, _get("This document", s.OBJECT)),
)
