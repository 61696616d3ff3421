"""Handlers about the trials of the experiment, their metrics, output and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnilite._answers.backend import MetricQuery, Piece, RemarksQuery, TrialQuery, TrialSort
from nnilite._rest import wire
from nnilite._rest.files import send_inside, split_path
from nnilite._rest.handler import ApiHandler
from nnilite._rest.remark_handlers import find_remarks_of
from nnilite.errors import ConfigError, Place, SpaceError
from nnilite.records import Json, MetricKind, TrialState
from nnilite.records.shapes import to_json
from nnilite.space import SearchSpace
from nnilite.tuner import EXTRAS

RERUN_MAX = 10_000
WORKERS_MAX = 100_000


class TrialsHandler(ApiHandler):
    """All trials, and the addition of one with the user's own parameters."""

    async def get(self) -> None:
        page = await self.backend.results.trials(read_trial_query(self.query))
        known = await self.backend.results.remarks(RemarksQuery(trials=[trial.id for trial in page.trials]))
        self.send_json(wire.describe_trial_page(page, {one.trial: one for one in known}))

    async def post(self) -> None:
        body = wire.check_strict_object(self.json(), ["parameters"])
        parameters = body.get("parameters")
        if not isinstance(parameters, dict):
            raise ConfigError("must be an object", Place(field="parameters"))
        trial = await self.backend.control.add_trial(parameters)
        space = (await self.backend.profile()).space
        self.send_json({**to_json(trial), "warning": _describe_oddity(space, parameters)}, 201)


class TrialHandler(ApiHandler):
    """One trial with its attempts, and its cancellation."""

    async def get(self, id: str) -> None:
        trial, attempts = await self.backend.results.trial(id)
        use = (await self.backend.uses()).get(id)
        self.send_json(wire.describe_trial(trial, attempts, {id: await find_remarks_of(self.backend, id)}, use))

    async def delete(self, id: str) -> None:
        self.send_json(to_json(await self.backend.control.cancel_trial(id)))


class UsageHandler(ApiHandler):
    """What running trials use."""

    async def get(self) -> None:
        self.send_json({"uses": [to_json(use) for use in (await self.backend.uses()).values()]})


class WorkersHandler(ApiHandler):
    """The number of workers of an elastic trial."""

    async def put(self, id: str) -> None:
        workers = read_workers_wanted(self.json())
        self.send_json(to_json(await self.backend.control.scale_trial(id, workers)))


class InterruptHandler(ApiHandler):
    """Ends the running attempt of a trial as the loss of its machine would."""

    async def post(self, id: str) -> None:
        wire.check_strict_object(self.json(), [])
        self.send_json(to_json(await self.backend.control.interrupt_trial(id)), 202)


class RerunHandler(ApiHandler):
    """Runs ended trials again."""

    async def post(self) -> None:
        ids, state = rerun_choice(self.json())
        trials = await self.backend.control.rerun(ids, state)
        self.send_json({"trials": [to_json(trial) for trial in trials]})


class MetricsHandler(ApiHandler):
    """Metrics of one trial (`id`) or of all."""

    async def get(self, id: str | None = None) -> None:
        if id is not None:
            await self.backend.results.trial(id)
        page = await self.backend.results.metrics(read_metric_query(id, self.query))
        self.send_json(to_json(page))


class OutputHandler(ApiHandler):
    """A piece of a trial's output."""

    async def get(self, id: str, stream: str) -> None:
        offset, limit = self.query["offset"], self.query["limit"]
        send_piece(self, await self.backend.files.output(id, self.query["attempt"], stream, offset, limit))


class FilesHandler(ApiHandler):
    """The list of a trial's files, and a copy of all of them."""

    async def get(self, id: str) -> None:
        self.send_json(to_json(await self.backend.files.list_files(id, self.query["fetch"])))

    async def post(self, id: str) -> None:
        wire.check_strict_object(self.json(), [])
        await self.backend.files.fetch_files(id)
        self.send_json(to_json(await self.backend.files.list_files(id, False)))


class FileHandler(ApiHandler):
    """One file of a trial."""

    async def get(self, id: str, path: str) -> None:
        if self.query["fetch"]:
            split_path(path)
            await self.backend.files.fetch_file(id, path)
        await send_inside(self, await self.backend.files.directory(id), path)


def _describe_oddity(space: Json, given: Json) -> str:
    """Return a sentence on parameters outside of the search space; "" if all are inside."""
    try:
        known = SearchSpace.parse(space)
    except SpaceError:  # the user's own tuner has its own kind of search space
        return ""
    why = known.contains(_drop_extras(given))
    if why is None:
        return ""
    return f"the parameters are outside the search space ({why}), so the tuner may not learn"


def _drop_extras(parameters: Json) -> Json:
    if not isinstance(parameters, Mapping):
        return parameters
    return {key: value for key, value in parameters.items() if key not in EXTRAS}


def send_piece(handler: ApiHandler, piece: Piece) -> None:
    """Answer with a piece of text and the offset of the next one."""
    handler.set_header("Content-Type", "text/plain; charset=utf-8")
    handler.set_header("X-Offset", piece.offset)
    handler.set_header("X-Next-Offset", piece.offset + len(piece.data))
    handler.set_header("X-Total-Size", piece.total)
    handler.finish(piece.data)


def read_trial_query(query: Any) -> TrialQuery:
    return TrialQuery(
        states=tuple(TrialState(state) for state in query["state"]),
        sort=TrialSort(query["sort"]),
        descending=query["descending"],
        offset=query["offset"],
        limit=query["limit"],
        id_prefix=query["id_prefix"] or "",
        after_revision=query["after_revision"],
        tags=tuple(query["tag"]),
    )


def read_metric_query(trial: str | None, query: Any) -> MetricQuery:
    kind = query["kind"]
    return MetricQuery(
        trial, None if kind is None else MetricKind(kind), query["attempt"], query["after"], query["limit"]
    )


def read_workers_wanted(body: Json) -> int:
    """Return the number of workers that a request sets."""
    workers: Any = wire.check_strict_object(body, ["workers"]).get("workers")
    number = isinstance(workers, int | float) and not isinstance(workers, bool)
    if not number or workers % 1 or not 1 <= workers <= WORKERS_MAX:  # 3.0 is a whole number in JSON
        raise ConfigError(f"must be a whole number from 1 to {WORKERS_MAX}", Place(field="workers"))
    return int(workers)


def rerun_choice(body: Json) -> tuple[list[str], TrialState | None]:
    """Return trial ids, or a state, but not both."""
    choice = wire.check_strict_object(body, ["ids", "state"])
    if len(choice) != 1:
        raise ConfigError('say which trials: {"ids": [...]} or {"state": "FAILED"}')
    if "state" in choice:
        return [], _read_ended_state(choice["state"])
    ids = choice["ids"]
    if not isinstance(ids, list) or not 0 < len(ids) <= RERUN_MAX or not all(isinstance(one, str) for one in ids):
        raise ConfigError("must be a list of trial ids", Place(field="ids"))
    return ids, None


def _read_ended_state(name: Json) -> TrialState:
    known = [state.value for state in TrialState if state.ended]
    if name not in known:
        raise ConfigError(f"must be one of {', '.join(known)}", Place(field="state"))
    return TrialState(name)
