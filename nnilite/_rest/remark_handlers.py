"""Handlers about what people have written about trials: tags and notes, also of an experiment that is only viewed."""

from __future__ import annotations

from nnilite._answers.backend import Backend, RemarksQuery, TrialRemarks
from nnilite._experiments.experiment_remarks import checked
from nnilite._rest import wire
from nnilite._rest.handler import ApiHandler
from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.records.shapes import to_json

BODY_MAX = 256 * 1024
_FIELDS = ("tags", "note", "revision")


class TrialRemarksHandler(ApiHandler):
    """The remarks of one trial."""

    async def get(self, id: str) -> None:
        await self.backend.results.trial(id)
        self.send_json(to_json(await find_remarks_of(self.backend, id)))

    async def put(self, id: str) -> None:
        self.send_json(to_json(await self.backend.control.remark(read_remarks(id, self.json()))))


class RemarksHandler(ApiHandler):
    """The remarks of all trials that have some."""

    async def get(self) -> None:
        query = RemarksQuery(after=self.query["after"], limit=self.query["limit"])
        self.send_json({"remarks": [to_json(one) for one in await self.backend.results.remarks(query)]})


async def find_remarks_of(backend: Backend, trial: str) -> TrialRemarks:
    """Return the remarks of one trial, empty if none have been written."""
    found = await backend.results.remarks(RemarksQuery(trials=[trial]))
    return found[0] if found else TrialRemarks(trial)


def read_remarks(trial: str, body: Json) -> TrialRemarks:
    """Return the remarks in a request. Raises: ConfigError."""
    tags, note, revision = wire.read_fields(body, _FIELDS)
    number = isinstance(revision, int | float) and not isinstance(revision, bool)
    if not number or revision % 1 or revision < 0:  # 3.0 is a whole number in JSON
        raise ConfigError("must be a whole number from 0", Place(field="revision"))
    words = checked("", tags, note)
    return TrialRemarks(trial, words.tags, words.note, int(revision))
