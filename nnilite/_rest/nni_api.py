"""NNI 3.0's REST interface over the same manager, so that scripts and pages written for NNI keep working.

Formats are NNI's (`nni_wire`), but refusals are nnilite's own: 404 for missing things, 400 with a sentence for
impossible requests. Routes for NNI's own web page only (netron, /logs) are left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from nnilite import _version
from nnilite._answers.backend import Backend, MetricQuery, Profile, Results, TrialQuery
from nnilite._answers.queries import Listed
from nnilite._rest import nni_wire
from nnilite._rest.changeable_fields import read_changes
from nnilite._rest.experiment_handlers import read_pairs
from nnilite._rest.export import send_texts
from nnilite._rest.files import send_inside, split_path
from nnilite._rest.handler import ApiHandler
from nnilite.errors import ConfigError, Conflict, NotFound
from nnilite.records import Json, MetricKind, Trial, TrialState, strict_json

PAGE = 1000
_PAGE_BYTES = 1024 * 1024  # bytes of values of metrics; each may have a megabyte
_OUTPUTS = {"stdout": "stdout", "stderr": "stderr", "trial.stdout": "stdout", "trial.stderr": "stderr"}
_TEXT_MAX = 4 * 1024 * 1024  # bytes; of a longer output only the end is sent


class NniVersionHandler(ApiHandler):
    """The version, as plain text."""

    def get(self) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(_version.__version__)


class NniStatusHandler(ApiHandler):
    """The experiment's state."""

    async def get(self) -> None:
        self.send_json(nni_wire.status(await self.backend.profile()))


class NniExperimentHandler(ApiHandler):
    """The profile, one update of it, and the stop."""

    async def get(self) -> None:
        self.send_json(nni_wire.profile(await self.backend.profile()))

    async def put(self) -> None:
        change = nni_wire.changes(self.query["update_type"], self.json())
        await self.backend.control.update(read_changes(change))
        send_nothing(self)

    async def delete(self) -> None:
        await self.backend.control.stop()
        send_nothing(self)


class NniMetadataHandler(ApiHandler):
    """The experiment as an entry of the machine's list."""

    async def get(self) -> None:
        profile = await self.backend.profile()
        known = [item for item in await self.backend.others() if item.id == profile.id]
        self.send_json(nni_wire.entry(known[0] if known else _listed(profile), self.context.options.prefix))


class NniExperimentsHandler(ApiHandler):
    """The machine's experiments."""

    async def get(self) -> None:
        self.send_json([nni_wire.entry(item) for item in await self.backend.others()])


class NniImportHandler(ApiHandler):
    """Results known from elsewhere."""

    async def post(self) -> None:
        await self.backend.control.import_data(read_pairs(self.json()))
        send_nothing(self)


class NniImportedHandler(ApiHandler):
    """The results that were imported, a text for each import."""

    async def get(self) -> None:
        self.send_json([nni_wire.imported(pairs) for pairs in await self.backend.results.imported()])


class NniClusterHandler(ApiHandler):
    """Settings of a cluster, which NNI 1 sent apart from the config. They have no effect."""

    def put(self) -> None:
        if not isinstance(self.json(), dict):
            raise ConfigError("the body must be an object of settings")
        send_nothing(self)


class NniTensorboardsHandler(ApiHandler):
    """The tasks of TensorBoard; the list is always empty here."""

    def get(self) -> None:
        self.send_json([])

    def delete(self) -> None:
        send_nothing(self)


class NniTensorboardHandler(ApiHandler):
    """The start of a TensorBoard, which is refused."""

    def post(self) -> None:
        raise Conflict("no TensorBoard is started here: run `tensorboard --logdir FOLDER` with the folder of a trial")


class NniStatisticsHandler(ApiHandler):
    """The number of trials in each state."""

    async def get(self) -> None:
        self.send_json(nni_wire.statistics((await self.backend.profile()).counts))


class NniTrialsHandler(ApiHandler):
    """All trials, and the addition of one."""

    async def get(self) -> None:
        directory = (await self.backend.profile()).directory
        state = self.query["status"]
        query = TrialQuery(() if state is None else (TrialState(state),), limit=PAGE)
        await send_list(self, (nni_wire.trial(item, directory) async for item in read_all_trials(self.backend, query)))

    async def post(self) -> None:
        parameters = self.json()
        if not isinstance(parameters, dict):
            raise ConfigError("the body must be an object of parameters")
        self.send_json({"sequenceId": (await self.backend.control.add_trial(parameters)).sequence})


class NniTrialHandler(ApiHandler):
    """One trial, and its cancellation."""

    async def get(self, id: str) -> None:
        trial, _ = await self.backend.results.trial(id)
        self.send_json(nni_wire.trial(trial, (await self.backend.profile()).directory))

    async def delete(self, id: str) -> None:
        await self.backend.control.cancel_trial(id)
        send_nothing(self)


class NniMetricsHandler(ApiHandler):
    """Metrics of one trial or of all."""

    async def get(self, id: str | None = None) -> None:
        kind = None if self.query["type"] is None else MetricKind(self.query["type"])
        if id is not None:
            await self.backend.results.trial(id)
        await send_list(self, records(self.backend.results, MetricQuery(id, kind)))


class NniLatestMetricsHandler(ApiHandler):
    """All final metrics, then the last intermediate one of each trial."""

    async def get(self) -> None:
        await send_list(self, self._find_latest())

    async def _find_latest(self) -> AsyncIterator[Json]:
        for query in (MetricQuery(kind=MetricKind.FINAL), MetricQuery(kind=MetricKind.PERIODICAL, last=True)):
            async for record in records(self.backend.results, query):
                yield record


class NniMetricRangeHandler(ApiHandler):
    """Metrics of the trials with sequence numbers from `low` to `high`, both included."""

    async def get(self, low: str, high: str) -> None:
        await send_list(self, self._range(int(low), int(high)))

    async def _range(self, low: int, high: int) -> AsyncIterator[Json]:
        # Sequence numbers count from 0 without gaps, so the first trial is at its own number.
        async for trial in read_all_trials(
            self.backend, TrialQuery(offset=low, limit=min(PAGE, max(1, high - low + 1)))
        ):
            if trial.sequence > high:
                return
            async for record in records(self.backend.results, MetricQuery(trial.id)):
                yield record


class NniExportHandler(ApiHandler):
    """Parameters and final metric of the trials that succeeded."""

    async def get(self) -> None:
        trials = self.backend.results.read_ended()
        await send_list(
            self,
            (
                nni_wire.exported(trial)
                async for trial in trials
                if trial.state is TrialState.SUCCEEDED and trial.value is not None
            ),
        )


class NniFileHandler(ApiHandler):
    """Output or a file of a trial."""

    async def get(self, id: str, path: str) -> None:
        if path in _OUTPUTS:
            await self._send_output(id, _OUTPUTS[path], path)
            return
        split_path(path)
        await self.backend.files.fetch_file(id, path)
        root = await self.backend.files.directory(id)
        try:
            await send_inside(self, root, path)
        except NotFound:
            if path != "trial.log":
                raise
            # Only a trial that imports the real nni writes a trial.log.
            await self._send_output(id, "stdout", path)

    async def _send_output(self, trial: str, stream: str, name: str) -> None:
        piece = await self.backend.files.output(trial, None, stream, -_TEXT_MAX, _TEXT_MAX)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(piece.data or f"{name} is empty.")


async def send_list(handler: ApiHandler, items: AsyncIterator[Json]) -> None:
    handler.set_header("Content-Type", "application/json")
    await send_texts(handler, _array(items))


def send_nothing(handler: ApiHandler) -> None:
    """Send NNI's empty answer: 200 and no text."""
    handler.clear_header("Content-Type")
    handler.finish()


async def read_all_trials(backend: Backend, query: TrialQuery) -> AsyncIterator[Trial]:
    """Yield every trial from `query.offset` on, by sequence, read page by page."""
    offset = query.offset
    while True:
        page = await backend.results.trials(TrialQuery(query.states, offset=offset, limit=query.limit))
        for trial in page.trials:
            yield trial
        offset += len(page.trials)
        if len(page.trials) < query.limit:
            return


async def records(results: Results, query: MetricQuery) -> AsyncIterator[Json]:
    """Yield NNI's records of all matching metrics of the current attempts, with one page of them in memory."""
    query = replace(query, limit=PAGE, size=_PAGE_BYTES, current=True)
    while True:
        page = await results.metrics(query)
        for metric, parameter_id in zip(page.metrics, page.parameter_ids, strict=True):
            yield nni_wire.metric(metric, parameter_id)
        if not page.metrics:
            return
        query = replace(query, after=page.next)


async def _array(items: AsyncIterator[Json]) -> AsyncIterator[str]:
    separator = "["
    async for item in items:
        yield separator + strict_json.spell_json(item)
        separator = ","
    yield "]" if separator == "," else "[]"


def _listed(profile: Profile) -> Listed:
    return Listed(
        profile.id,
        profile.name,
        profile.state.value,
        profile.port,
        profile.url,
        profile.pid,
        profile.directory,
        ",".join(profile.platforms),
        profile.started,
        profile.ended,
    )
