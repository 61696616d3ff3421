"""Handlers of what pages remember for their user; the managers and the hub have the same ones."""

from __future__ import annotations

import asyncio
from typing import Any

from nnilite._experiments import page_preferences
from nnilite._experiments.page_preferences import ADDRESS_MAX, COLUMNS_MAX, KEY_MAX, NAME_MAX, PagePreferences
from nnilite._rest import schemas as s
from nnilite._rest import wire
from nnilite._rest.handler import RouteHandler
from nnilite._rest.route_definition import Operation, Param, Response, Route, Schema

_BODY_MAX = 256 * 1024  # bytes


class _MemoryHandler(RouteHandler):
    def _send(self, known: PagePreferences, place: Any, table: Any) -> None:
        views = known.views.get(place, {})
        self.send_json(
            {
                "views": [{"name": name, "address": address} for name, address in views.items()],
                "columns": [*known.columns.get(table, [])],
            }
        )


class PagePreferencesHandler(_MemoryHandler):
    """The named views of a place, and the columns of a table."""

    async def get(self) -> None:
        known = await asyncio.to_thread(page_preferences.read)
        self._send(known, self.query["place"], self.query["table"])


class PageViewHandler(_MemoryHandler):
    """Gives a view a name, or forgets it."""

    async def put(self) -> None:
        place, name, address = wire.read_fields(self.json(), ("place", "name", "address"))
        known = await asyncio.to_thread(page_preferences.keep_view, place, name, address)
        self._send(known, str(place).strip(), "")


class PageColumnsHandler(_MemoryHandler):
    """Chooses the columns of a table."""

    async def put(self) -> None:
        table, columns = wire.read_fields(self.json(), ("table", "columns"))
        known = await asyncio.to_thread(page_preferences.keep_columns, table, columns)
        self._send(known, "", table)


_LINE = s.line(0, 1000, default="")
_ANSWER = s.record(views=s.array(s.record(name=s.TEXT, address=s.TEXT)), columns=s.array(s.TEXT))
_STRICT = {"additionalProperties": False}


def _line(most: int) -> Schema:
    """Return the schema of one line that is not blank."""
    return {"type": "string", "maxLength": most, "pattern": r"^[^\x00-\x1f]*[^\s\x00-\x1f][^\x00-\x1f]*$"}


_KEY: Schema = {"type": "string", "minLength": 1, "maxLength": KEY_MAX}
"""A table, or one of its columns: these have the names of parameters, which may have line ends in them."""
_ADDRESS: Schema = {"type": "string", "maxLength": ADDRESS_MAX, "pattern": "^[ -~]*$"}

PAGE_PREFERENCE_ROUTES = (
    Route(
        "/page",
        PagePreferencesHandler,
        {
            "GET": Operation(
                "What the page remembers for its user",
                Response("named views and chosen columns; none stands for the usual ones", _ANSWER),
                query=(
                    Param("place", _LINE, "whose views: the id of an experiment, or `ui` for the page of all"),
                    Param("table", {**_KEY, "minLength": 0, "default": ""}, "which table's columns"),
                ),
            )
        },
    ),
    Route(
        "/page/views",
        PageViewHandler,
        {
            "PUT": Operation(
                "Give a view a name; with an empty address, forget it",
                Response("all views of the place", _ANSWER),
                body={
                    **s.record(place=_line(KEY_MAX), name=_line(NAME_MAX), address=_ADDRESS),
                    **_STRICT,
                },
                refusals=(409,),
            )
        },
        body_max=_BODY_MAX,
    ),
    Route(
        "/page/columns",
        PageColumnsHandler,
        {
            "PUT": Operation(
                "Choose the columns of a table; an empty list restores the usual ones",
                Response("the columns", _ANSWER),
                body={**s.record(table=_KEY, columns=s.array(_KEY, maxItems=COLUMNS_MAX)), **_STRICT},
                refusals=(409,),
            )
        },
        body_max=_BODY_MAX,
    ),
)
