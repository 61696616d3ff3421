"""Sends all ended trials as one file while it reads them, so that a hundred thousand trials need no memory."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from nnilite._answers.backend import RemarksQuery
from nnilite._rest import wire
from nnilite._rest.handler import ApiHandler
from nnilite.records import Json, Trial, strict_json
from nnilite.records.dotted import flatten
from nnilite.units import format_csv_text

CHUNK_BYTES = 64 * 1024
_FIXED = (
    "id",
    "sequence",
    "state",
    "attempt",
    "started",
    "ended",
    "service",
    "cost",
    "violates",
    "tags",
    "note",
    "value",
)


class ExportHandler(ApiHandler):
    """The export as JSON or CSV."""

    async def get(self) -> None:
        kind = self.query["format"]
        name = f"{self.backend.experiment_id}.{kind}"
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        known = {one.trial: one for one in await self.backend.results.remarks(RemarksQuery())}
        if kind == "csv":
            self.set_header("Content-Type", "text/csv; charset=utf-8")
            columns = await columns_of(self.backend.results.read_ended())
            await self._send(write_csv_lines(self.backend.results.read_ended(), columns, known))
        else:
            self.set_header("Content-Type", "application/json")
            await self._send(write_json_lines(self.backend.results.read_ended(), known))

    async def _send(self, texts: AsyncIterator[str]) -> None:
        await send_texts(self, texts)


async def send_texts(handler: ApiHandler, texts: AsyncIterator[str]) -> None:
    """Send pieces of text in chunks of a useful size."""
    waiting: list[str] = []
    size = 0
    async for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= CHUNK_BYTES:
            await handler.send_piece("".join(waiting).encode())
            waiting, size = [], 0
    handler.finish("".join(waiting).encode())


async def write_json_lines(trials: AsyncIterator[Trial], known: wire.Remarked) -> AsyncIterator[str]:
    """Yield one JSON array, a line for each trial."""
    separator = "[\n"
    async for trial in trials:
        yield separator + strict_json.spell_json(wire.remarked(trial, known))
        separator = ",\n"
    yield "\n]\n" if separator == ",\n" else "[]\n"


async def columns_of(trials: AsyncIterator[Trial]) -> list[str]:
    """Return the parameters, metrics and attributes that occur: nested choices give different trials different ones."""
    found: dict[str, None] = {}
    async for trial in trials:
        found.update(dict.fromkeys(name for name, _ in list_cells(trial)))
    return sorted(found)


async def write_csv_lines(
    trials: AsyncIterator[Trial], columns: Sequence[str], known: wire.Remarked
) -> AsyncIterator[str]:
    yield _row([*_FIXED, *columns])
    async for trial in trials:
        item = wire.remarked(trial, known)
        item["tags"] = ", ".join(item["tags"])
        cells = dict(list_cells(trial))
        main = wire.find_default_metric(trial.value)
        fixed = [*(item[name] for name in _FIXED[:-1]), main]
        yield _row([*map(_cell, fixed), *(_cell(cells.get(name)) for name in columns)])


def list_cells(trial: Trial) -> list[tuple[str, Json]]:
    """Return the cells by column: `parameter.<name>`, `attribute.<name>`, `metric.<name>` of metrics that are objects.

    The names are dotted.
    """
    cells = list(flatten(trial.parameters, "parameter"))
    if isinstance(trial.value, dict):
        cells += flatten(trial.value, "metric")
    return [*cells, *((f"attribute.{name}", value) for name, value in trial.attributes.items())]


def _cell(value: Json) -> Any:
    if value is None:
        return ""
    return format_csv_text(value) if isinstance(value, str) else strict_json.spell_json(value).strip('"')


def _row(cells: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", "replace").decode()
