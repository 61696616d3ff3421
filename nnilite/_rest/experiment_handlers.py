"""Handlers about the experiment itself: its profile, limits and logs, and the machine's other experiments."""

from __future__ import annotations

import asyncio

from nnilite import _version
from nnilite._experiments.provenance_reading import comparable
from nnilite._rest import wire
from nnilite._rest.changeable_fields import read_changes
from nnilite._rest.handler import ApiHandler
from nnilite._rest.trials import send_piece
from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.records.shapes import to_json

IMPORT_MAX = 100_000


class VersionHandler(ApiHandler):
    """The versions of nnilite and the id of the experiment."""

    def get(self) -> None:
        self.send_json({"version": _version.__version__, "experiment": self.backend.experiment_id})


class ExperimentHandler(ApiHandler):
    """The profile, and changes of limits and search space."""

    async def get(self) -> None:
        self.send_json(to_json(await self.backend.profile()))

    async def patch(self) -> None:
        await self.backend.control.update(read_changes(self.json()))
        self.send_json(to_json(await self.backend.profile()))


class StopHandler(ApiHandler):
    """Stops the experiment."""

    async def post(self) -> None:
        wire.check_strict_object(self.json(), [])
        await self.backend.control.stop()
        self.send_json({"stopping": True}, 202)


class ResumeHandler(ApiHandler):
    """Resumes an experiment that is only viewed."""

    async def post(self) -> None:
        wire.check_strict_object(self.json(), [])
        await self.backend.control.resume()
        self.send_json({"resuming": True}, 202)


class ImportHandler(ApiHandler):
    """Hands the tuner results known from elsewhere."""

    async def post(self) -> None:
        pairs = read_pairs(self.json())
        imported, known, warning = await self.backend.control.import_data(pairs)
        self.send_json({"imported": imported, "known": known, "warning": warning})


class LogHandler(ApiHandler):
    """A piece of the manager's or the tuner's log."""

    async def get(self, name: str) -> None:
        send_piece(self, await self.backend.files.log(name, self.query["offset"], self.query["limit"]))


class ProvenanceHandler(ApiHandler):
    """What was recorded at a start of a manager, and what trials ran with on their hosts."""

    async def get(self) -> None:
        starts = await self.backend.files.starts()
        number: int = self.query["start"]
        chosen = starts[number] if -len(starts) <= number < len(starts) else None
        workers = await self.backend.files.recorded_workers() if starts else ()
        if chosen is not None and self.query["comparable"]:
            chosen = await asyncio.to_thread(comparable, chosen, workers)
        self.send_json(
            {
                "times": [one.get("time") for one in starts],
                "start": None if chosen is None else dict(chosen),
                "workers": [dict(one) for one in workers],
            }
        )


class ExperimentsHandler(ApiHandler):
    """All experiments of this machine."""

    async def get(self) -> None:
        self.send_json({"experiments": [to_json(item) for item in await self.backend.others()]})


def read_pairs(body: Json) -> list[tuple[Json, Json]]:
    """Return pairs of parameters and value from NNI's `[{"parameter": {...}, "value": ...}]`. Raises: ConfigError."""
    if not isinstance(body, list) or len(body) > IMPORT_MAX:
        raise ConfigError(f'results must be a list of at most {IMPORT_MAX} {{"parameter": {{...}}, "value": ...}}')
    return [_pair(number, item) for number, item in enumerate(body)]


def _pair(number: int, item: Json) -> tuple[Json, Json]:
    if not isinstance(item, dict) or not isinstance(item.get("parameter"), dict) or "value" not in item:
        raise ConfigError('must be {"parameter": {...}, "value": ...}', Place(field=f"[{number}]"))
    return item["parameter"], item["value"]
