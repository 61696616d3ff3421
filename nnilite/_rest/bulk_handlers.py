"""Handlers about many trials at once, for charts and large tables: rows, curves and the importance of parameters."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Sequence

from nnilite._answers.bulk_queries import Curve, Importance, ImportanceMethod, PageCursor, RowPage, Table
from nnilite._keeper.proof import digest
from nnilite._rest.handler import ApiHandler, prove
from nnilite.errors import ConfigError, Place
from nnilite.records import Json, strict_json

CURVES_MAX = 500
_COMPRESSION_LEVEL = 1  # compresses a megabyte in 10 ms
_WORTH_COMPRESSING_BYTES = 2000


class RowsHandler(ApiHandler):
    """Trials or attempts as arrays, in large pages: all, or those changed since an earlier page."""

    table = Table.TRIALS

    async def get(self) -> None:
        page = await self.backend.bulk.rows(self.table, read_cursor(self.query["after"]), self.query["limit"])
        text = write_rows(self.table, page).encode()
        self.set_header("Content-Type", "application/json")
        if self.signed is not None:
            prove(self, self.signed, digest(text))
        if len(text) > _WORTH_COMPRESSING_BYTES and "gzip" in self.request.headers.get("Accept-Encoding", ""):
            self.set_header("Content-Encoding", "gzip")
            text = await asyncio.to_thread(gzip.compress, text, _COMPRESSION_LEVEL)
        self.finish(text)


class AttemptRowsHandler(RowsHandler):
    """All attempts."""

    table = Table.ATTEMPTS


class CurvesHandler(ApiHandler):
    """Intermediate results of some trials, thinned out."""

    async def get(self) -> None:
        trials = self.query["trial"]
        if len(trials) > CURVES_MAX:
            raise ConfigError(f"at most {CURVES_MAX} trials at a time", Place(field="trial"))
        curves = await self.backend.bulk.curves(trials, self.query["points"], self.query["key"] or "default")
        self.send_json({"curves": [curve(item) for item in curves]})


class ImportanceHandler(ApiHandler):
    """How much each parameter matters."""

    async def get(self) -> None:
        method, key = ImportanceMethod(self.query["method"]), self.query["key"]
        if key is None:
            key = next(iter((await self.backend.profile()).objectives))
        self.send_json(importance(await self.backend.bulk.importance(method, key, self.query["stopped"])))


_CURSOR = re.compile(r"([0-9]{1,16})-([0-9]{1,16})")


def read_cursor(text: str | None) -> PageCursor:
    """Read a cursor such as `12-34`. Without a text it is the start. Raises: ConfigError."""
    if text is None:
        return PageCursor()
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise ConfigError("must be the `next` of an earlier answer", Place(field="after"))
    return PageCursor(int(found[1]), int(found[2]))


def write_rows(table: Table, page: RowPage) -> str:
    """Return the answer as text, since its rows are JSON already."""
    cursor = f"{max(page.next.major, 0)}-{max(page.next.minor, 0)}" if page.next != PageCursor() else None
    about = strict_json.spell_json({"columns": list(table.columns), "count": page.count, "next": cursor})
    return f'{about[:-1]},"rows":{page.rows}}}'


def curve(item: Curve) -> dict[str, Json]:
    return {"trial": item.trial, "steps": list(item.steps), "values": list(item.values)}


def importance(item: Importance) -> dict[str, Json]:
    ends: Sequence[tuple[float | None, float | None]] = item.intervals or [(None, None)] * len(item.shares)
    shares: list[Json] = [
        {"parameter": name, "importance": share, "low": low, "high": high}
        for (name, share), (low, high) in zip(item.shares, ends, strict=True)
    ]
    return {"method": item.method.value, "trials": item.trials, "importances": shares, "reason": item.reason}
