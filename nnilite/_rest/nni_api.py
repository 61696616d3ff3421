"""NNI 3.0's REST interface over the same manager, so that scripts and pages written for NNI go on working.

Formats are NNI's (`nni_wire`), refusals are ours: 404 for what is not there, 400 with a sentence for what cannot be.
What NNI offers for its own web page alone (tensorboard, netron, /logs) is not here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from nnilite import _version
from nnilite._rest import nni_wire, wire
from nnilite._rest.backend import Backend, MetricPage, MetricQuery, Profile, TrialQuery
from nnilite._rest.experiment import read_changes, read_pairs
from nnilite._rest.export import send_texts
from nnilite._rest.files import send_inside
from nnilite._rest.handler import ApiHandler
from nnilite._rest.views import Listed
from nnilite.errors import ConfigError, NotFound
from nnilite.records import Json, Metric, MetricKind, Trial, TrialState

PAGE = 1000
_OUTPUTS = {"stdout": "stdout", "stderr": "stderr", "trial.stdout": "stdout", "trial.stderr": "stderr"}
_TEXT_MAX = 4 * 1024 * 1024  # bytes; of a longer output the end is sent


class NniHandler(ApiHandler):
    """What these handlers share."""

    async def send_list(self, items: AsyncIterator[Json]) -> None:
        self.set_header("Content-Type", "application/json")
        await send_texts(self, _array(items))

    def send_nothing(self) -> None:
        """NNI's answer where there is nothing to say: 200 and no text."""
        self.clear_header("Content-Type")
        self.finish()


class NniVersionHandler(NniHandler):
    """The version, as plain text."""

    def get(self) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(_version.__version__)


class NniStatusHandler(NniHandler):
    """The experiment's state."""

    async def get(self) -> None:
        self.send_json(nni_wire.status(await self.backend.profile()))


class NniExperimentHandler(NniHandler):
    """The profile; one update of it; stopping."""

    async def get(self) -> None:
        self.send_json(nni_wire.profile(await self.backend.profile()))

    async def put(self) -> None:
        change = nni_wire.changes(self.query["update_type"], self.json())
        await self.backend.update(read_changes(change))
        self.send_nothing()

    async def delete(self) -> None:
        await self.backend.stop()
        self.send_nothing()


class NniMetadataHandler(NniHandler):
    """This experiment as an entry of the machine's list."""

    async def get(self) -> None:
        profile = await self.backend.profile()
        known = [item for item in await self.backend.others() if item.id == profile.id]
        self.send_json(nni_wire.entry(known[0] if known else _listed(profile), self.site.options.prefix))


class NniExperimentsHandler(NniHandler):
    """The machine's experiments."""

    async def get(self) -> None:
        self.send_json([nni_wire.entry(item) for item in await self.backend.others()])


class NniImportHandler(NniHandler):
    """Results known from elsewhere."""

    async def post(self) -> None:
        await self.backend.import_data(read_pairs(self.json()))
        self.send_nothing()


class NniImportedHandler(NniHandler):
    """What was imported."""

    async def get(self) -> None:
        self.send_json([nni_wire.imported(pair) for pair in await self.backend.imported()])


class NniStatisticsHandler(NniHandler):
    """How many trials are in which state."""

    async def get(self) -> None:
        self.send_json(nni_wire.statistics((await self.backend.profile()).counts))


class NniTrialsHandler(NniHandler):
    """All trials; adding one."""

    async def get(self) -> None:
        directory = (await self.backend.profile()).directory
        state = self.query["status"]
        query = TrialQuery(() if state is None else (TrialState(state),), limit=PAGE)
        await self.send_list(nni_wire.trial(item, directory) async for item in all_trials(self.backend, query))

    async def post(self) -> None:
        parameters = self.json()
        if not isinstance(parameters, dict):
            raise ConfigError("the body must be an object of parameters")
        self.send_json({"sequenceId": (await self.backend.add_trial(parameters)).sequence})


class NniTrialHandler(NniHandler):
    """One trial; cancelling it."""

    async def get(self, id: str) -> None:
        trial, _ = await self.backend.trial(id)
        self.send_json(nni_wire.trial(trial, (await self.backend.profile()).directory))

    async def delete(self, id: str) -> None:
        await self.backend.cancel_trial(id)
        self.send_nothing()


class NniMetricsHandler(NniHandler):
    """Metrics of one trial or of all."""

    async def get(self, id: str | None = None) -> None:
        kind = None if self.query["type"] is None else MetricKind(self.query["type"])
        if id is None:
            owners = await all_owners(self.backend)
        else:
            owners = {id: nni_wire.owner((await self.backend.trial(id))[0])}
        await self.send_list(records(self.backend, owners, MetricQuery(id, kind, limit=PAGE)))


class NniLatestMetricsHandler(NniHandler):
    """All final metrics, then the last intermediate one of each trial."""

    async def get(self) -> None:
        await self.send_list(self._latest(await all_owners(self.backend)))

    async def _latest(self, owners: dict[str, nni_wire.Owner]) -> AsyncIterator[Json]:
        async for record in records(self.backend, owners, MetricQuery(kind=MetricKind.FINAL, limit=PAGE)):
            yield record
        last: dict[str, Json] = {}
        async for record in records(self.backend, owners, MetricQuery(kind=MetricKind.PERIODICAL, limit=PAGE)):
            last[record["trialJobId"]] = record
        for record in last.values():
            yield record


class NniMetricRangeHandler(NniHandler):
    """Metrics of the trials with sequence numbers from `low` to `high`, both included."""

    async def get(self, low: str, high: str) -> None:
        await self.send_list(self._range(int(low), int(high)))

    async def _range(self, low: int, high: int) -> AsyncIterator[Json]:
        # Sequence numbers count from 0 without gaps, so the first trial stands at its own number.
        async for trial in all_trials(self.backend, TrialQuery(offset=low, limit=min(PAGE, max(1, high - low + 1)))):
            if trial.sequence > high:
                return
            query = MetricQuery(trial.id, attempt=trial.attempt, limit=PAGE)
            async for record in records(self.backend, {trial.id: nni_wire.owner(trial)}, query):
                yield record


class NniExportHandler(NniHandler):
    """Parameters and final metric of the trials that succeeded."""

    async def get(self) -> None:
        trials = self.backend.export()
        await self.send_list(
            nni_wire.exported(trial)
            async for trial in trials
            if trial.state is TrialState.SUCCEEDED and trial.value is not None
        )


class NniFileHandler(NniHandler):
    """Output or a file of a trial."""

    async def get(self, id: str, path: str) -> None:
        if path in _OUTPUTS:
            await self._send_output(id, _OUTPUTS[path], path)
            return
        root = await self.backend.directory(id)
        try:
            await send_inside(self, root, path)
        except NotFound:
            if path != "trial.log":
                raise
            await self._send_output(id, "stdout", path)  # only a trial that imports the real nni writes a trial.log

    async def _send_output(self, trial: str, stream: str, name: str) -> None:
        piece = await self.backend.output(trial, None, stream, -_TEXT_MAX, _TEXT_MAX)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(piece.data or f"{name} is empty.")


async def all_trials(backend: Backend, query: TrialQuery) -> AsyncIterator[Trial]:
    """Every trial from `query.offset` on, by sequence, a page at a time."""
    offset = query.offset
    while True:
        page = await backend.trials(TrialQuery(query.states, offset=offset, limit=query.limit))
        for trial in page.trials:
            yield trial
        offset += len(page.trials)
        if len(page.trials) < query.limit:
            return


async def all_owners(backend: Backend) -> dict[str, nni_wire.Owner]:
    return {trial.id: nni_wire.owner(trial) async for trial in all_trials(backend, TrialQuery(limit=PAGE))}


async def records(backend: Backend, owners: dict[str, nni_wire.Owner], query: MetricQuery) -> AsyncIterator[Json]:
    """NNI's records of all metrics that match, of the latest attempts of trials that have an owner here."""
    page = MetricPage((), query.after)
    while True:
        page = await backend.metrics(MetricQuery(query.trial, query.kind, query.attempt, page.next, query.limit))
        for metric in page.metrics:
            if _is_latest(metric, owners):
                yield nni_wire.metric(metric, owners[metric.trial])
        if len(page.metrics) < query.limit:
            return


def _is_latest(metric: Metric, owners: dict[str, nni_wire.Owner]) -> bool:
    return metric.trial in owners and owners[metric.trial].attempt == metric.attempt


async def _array(items: AsyncIterator[Json]) -> AsyncIterator[str]:
    separator = "["
    async for item in items:
        yield separator + wire.dumps(item)
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
