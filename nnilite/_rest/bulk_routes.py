"""The part of the table of routes for charts and large tables."""

from __future__ import annotations

from nnilite._answers.bulk_queries import ImportanceMethod
from nnilite._rest import schemas as s
from nnilite._rest.bulk_handlers import AttemptRowsHandler, CurvesHandler, ImportanceHandler, RowsHandler
from nnilite._rest.route_definition import Operation, Param, Response, Route, Schema

_INTEGER = "integer"
_AFTER = Param(
    "after",
    {"type": "string", "pattern": "^[0-9]{1,16}-[0-9]{1,16}$"},
    "the `next` of an earlier answer: only what is new or has changed since",
)
_ROW_LIMIT = Param("limit", {"type": _INTEGER, "minimum": 1, "maximum": 20_000, "default": 5000}, "how many at most")
_TRIALS = Param("trial", s.array({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}, default=[]), "which trials")
_POINTS = Param("points", {"type": _INTEGER, "minimum": 2, "maximum": 2000, "default": 200}, "how many of each at most")
_LINE = s.line(1, 200)
_KEY = Param("key", _LINE, "which entry, where the metric is an object")
_OBJECTIVE = Param("key", _LINE, "for which number of the results; default: the first objective")
_METHOD = Param("method", s.choice([m.value for m in ImportanceMethod], default="auto"), "how it is found")
_STOPPED = Param(
    "stopped",
    {"type": "boolean", "default": False},
    "whether trials that were stopped early count with their latest results",
)
_END: Schema = {"type": ["number", "null"], "description": "of the interval in which nine of ten samples have it"}
_ROWS: Schema = s.record(
    columns=s.array(s.TEXT),
    count=s.COUNT,
    next={"type": ["string", "null"], "description": "continues after these; null: there is none yet"},
    rows=s.array({"type": "array", "description": "one value for each column"}),
)
_CURVE: Schema = s.record(trial=s.TEXT, steps=s.array(s.COUNT), values=s.array({"type": ["number", "null"]}))
_IMPORTANCE: Schema = s.record(
    method=s.choice([m.value for m in ImportanceMethod]),
    trials=s.COUNT,
    importances=s.array(s.record(parameter=s.TEXT, importance=s.NUMBER, low=_END, high=_END)),
    reason={"type": "string", "description": "why there are none"},
)


def _get(text: str, schema: Schema, *query: Param, refusals: tuple[int, ...] = ()) -> dict[str, Operation]:
    return {"GET": Operation(text, Response("OK", schema), query, refusals=refusals)}


INSIGHT_ROUTES = (
    Route(
        "/rows/trials",
        RowsHandler,
        _get("Trials as rows of a table, in the order of change", _ROWS, _AFTER, _ROW_LIMIT),
    ),
    Route("/rows/attempts", AttemptRowsHandler, _get("Attempts as rows of a table", _ROWS, _AFTER, _ROW_LIMIT)),
    Route(
        "/curves",
        CurvesHandler,
        _get(
            "Intermediate results of some trials, thinned out",
            s.record(curves=s.array(_CURVE)),
            *(_TRIALS, _POINTS, _KEY),
            refusals=(404,),
        ),
    ),
    Route(
        "/importance",
        ImportanceHandler,
        _get("How much each parameter matters", _IMPORTANCE, _METHOD, _OBJECTIVE, _STOPPED),
    ),
)
