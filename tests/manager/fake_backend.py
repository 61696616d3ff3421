"""A manager in memory that keeps the promises of `Backend`, so that the REST interface can be tested alone."""

from __future__ import annotations

import hmac
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nnilite._answers.backend import (
    CallbackAnswer,
    Changes,
    FencedConflict,
    FileListing,
    GapConflict,
    Listed,
    MetricPage,
    MetricQuery,
    Piece,
    Profile,
    RemarksQuery,
    Subscription,
    TrialPage,
    TrialQuery,
    TrialRemarks,
    TrialUsage,
)
from nnilite._answers.bulk_queries import Curve, Importance, ImportanceMethod, PageCursor, RowPage, Table
from nnilite._views.file_listing import list_folder
from nnilite.errors import ConfigError, Conflict, NotFound, StoreError
from nnilite.records import (
    Attempt,
    Exited,
    ExperimentLimits,
    ExperimentState,
    KeeperEvent,
    Metric,
    MetricKind,
    Output,
    Reported,
    Started,
    Trial,
    TrialState,
)
from waiting import others_turn

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}
CONFIG = {"trialCommand": "python3 trial.py", "trainingService": {"platform": "local"}}


@dataclass
class FakeBackend:
    """Counts every change of its state in `revision`, so that a test can tell whether there was one."""

    folder: Path
    token: str = "the token of the fake"
    read_only: bool = False
    experiment_id: str = "exp12345"
    revision: int = 0
    kept: dict[str, Trial] = field(default_factory=dict)
    reported: list[Metric] = field(default_factory=list)
    remarked: dict[str, TrialRemarks] = field(default_factory=dict)
    outputs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    fetches: list[str] = field(default_factory=list)  # which files were listed, and which were brought here
    fenced: set[str] = field(default_factory=set)
    canceled: set[str] = field(default_factory=set)
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    import_warning: str = ""
    updates: dict[str, Any] = field(default_factory=dict)
    workers: dict[str, int] = field(default_factory=dict)
    used: dict[str, TrialUsage] = field(default_factory=dict)
    stopped: bool = False
    failure: BaseException | None = None  # raised by `profile`
    export_ends_after: int = -1
    exports_closed: int = 0
    changes: Changes = field(default_factory=Changes)

    @property
    def results(self) -> FakeBackend:
        return self

    bulk = files = control = callbacks = results

    def find_job(self, trial: str) -> str:
        return f"nni-{self.experiment_id}-{trial}-{self.kept[trial].attempt}"

    def put(self, trial: Trial) -> Trial:
        self.kept[trial.id] = trial
        self.revision += 1
        self.changes.publish(trial)
        return trial

    async def profile(self) -> Profile:
        if self.failure is not None:
            raise self.failure
        counts = Counter(trial.state for trial in self.kept.values())
        limits = ExperimentLimits(self.updates.get("concurrency", 2), self.updates.get("max_trials", 10))
        return Profile(
            self.experiment_id,
            "a fake",
            ExperimentState.RUNNING,
            CONFIG,
            SPACE,
            ["local"],
            str(self.folder),
            "0.1.0",
            1000.0,
            limits,
            started=1001.0,
            duration_s=5.5,
            counts=counts,
            best=next(iter(self.kept.values()), None),
            read_only=self.read_only,
            next_sequence=len(self.kept),
            revision=self.revision,
        )

    async def update(self, changes: Mapping[str, Any]) -> None:
        if "refused" in changes.get("search_space", ()):
            raise ConfigError("the tuner refuses it")
        self.updates.update(changes)
        self.revision += 1

    async def stop(self) -> None:
        self.stopped = True

    async def resume(self) -> None:
        if not self.read_only:
            raise Conflict("it runs already")

    async def trials(self, query: TrialQuery) -> TrialPage:
        found = [trial for trial in self.kept.values() if not query.states or trial.state in query.states]
        found = [trial for trial in found if trial.id.startswith(query.id_prefix)]
        found = [trial for trial in found if set(query.tags) <= set(self.tags_of(trial.id))]
        found.sort(key=lambda trial: trial.sequence, reverse=query.descending)
        return TrialPage(found[query.offset : query.offset + query.limit], len(found), self.revision)

    async def trial(self, trial: str) -> tuple[Trial, Sequence[Attempt]]:
        found = self.known(trial)
        return found, [Attempt(trial, found.attempt, "local", {"pid": 1, "secret": "handle-secret"})]

    def known(self, trial: str) -> Trial:
        if trial not in self.kept:
            raise NotFound(f"there is no trial {trial}")
        return self.kept[trial]

    async def uses(self) -> Mapping[str, TrialUsage]:
        return self.used

    async def add_trial(self, parameters: Any) -> Trial:
        number = len(self.kept)
        return self.put(Trial(f"T{number:04}", number, parameters, source="customized", created=1000.0))

    async def cancel_trial(self, trial: str) -> Trial:
        if self.known(trial).state.ended:
            raise Conflict(f"trial {trial} has ended already")
        return self.put(replace(self.kept[trial], state=TrialState.USER_CANCELED))

    async def interrupt_trial(self, trial: str) -> Trial:
        if self.known(trial).state is not TrialState.RUNNING:
            raise Conflict(f"trial {trial} does not run")
        return self.known(trial)

    async def scale_trial(self, trial: str, workers: int) -> Trial:
        found = self.known(trial)
        if found.state.ended or workers > 4:
            raise Conflict(f"trial {trial} cannot have {workers} workers")
        self.workers[trial] = workers
        return found

    async def rerun(self, ids: Sequence[str], state: TrialState | None) -> Sequence[Trial]:
        found = [self.known(trial) for trial in ids] or [t for t in self.kept.values() if t.state is state]
        return [self.put(replace(t, state=TrialState.WAITING, attempt=t.attempt + 1)) for t in found]

    def tags_of(self, trial: str) -> Sequence[str]:
        return self.remarked[trial].tags if trial in self.remarked else ()

    async def remarks(self, query: RemarksQuery) -> Sequence[TrialRemarks]:
        found = sorted(self.remarked.values(), key=lambda one: one.revision)
        if query.trials is not None:
            found = [one for one in found if one.trial in query.trials]
        return [one for one in found if one.revision > query.after][: query.limit]

    async def remark(self, remarks: TrialRemarks) -> TrialRemarks:
        self.known(remarks.trial)
        known = self.remarked.get(remarks.trial) or TrialRemarks(remarks.trial)
        if known.revision != remarks.revision:
            raise Conflict("these remarks have changed in the meantime")
        kept = replace(remarks, revision=1 + max((one.revision for one in self.remarked.values()), default=0))
        self.remarked[kept.trial] = kept
        self.changes.publish(kept)
        return kept

    async def metrics(self, query: MetricQuery) -> MetricPage:
        found = [
            (number, metric)
            for number, metric in enumerate(self.reported, 1)
            if number > query.after
            and query.trial in (None, metric.trial)
            and query.kind in (None, metric.kind)
            and query.attempt in (None, metric.attempt)
            and not (query.current and metric.attempt != self.kept[metric.trial].attempt)
            and not (query.last and (metric.trial, query.kind) in [(m.trial, m.kind) for m in self.reported[number:]])
        ][: query.limit]
        ids = [self.kept[metric.trial].parameter_id for _, metric in found]
        return MetricPage([metric for _, metric in found], found[-1][0] if found else query.after, ids)

    async def rows(self, table: Table, after: PageCursor, limit: int) -> RowPage:
        found = [trial for trial in self.kept.values() if trial.sequence > after.minor][:limit]
        rows = [[trial.sequence, trial.id] for trial in found] if table is Table.TRIALS else []
        return RowPage(json.dumps(rows), len(rows), PageCursor(0, found[-1].sequence) if rows else after)

    async def curves(self, trials: Sequence[str], points: int, key: str) -> Sequence[Curve]:
        return [Curve(trial, [0, 1], [0.5, None]) for trial in trials if trial in self.kept]

    async def importance(self, method: ImportanceMethod, key: str, stopped: bool = False) -> Importance:
        return Importance(method, len(self.kept), [("x", 1.0)], intervals=[(0.9, 1.0)])

    async def events(self, job: str, events: Sequence[KeeperEvent]) -> CallbackAnswer:
        trial = next((trial for trial in self.kept if self.find_job(trial) == job), None)
        if trial is None:
            raise NotFound(f"there is no job {job}")
        if job in self.fenced:
            raise FencedConflict("this attempt was silent for too long")
        first = next((event.index for event in events if isinstance(event, Reported)), 0)
        if first > len(await self._metrics_of(trial)):
            raise GapConflict(await self._answer(trial))
        for event in events:
            await self._take(trial, event)
        await others_turn()
        return await self._answer(trial)

    async def _metrics_of(self, trial: str) -> Sequence[Metric]:
        attempt = self.kept[trial].attempt
        return (await self.metrics(MetricQuery(trial, attempt=attempt, limit=10**6))).metrics

    async def _answer(self, trial: str) -> CallbackAnswer:
        sizes = {name: len(self.outputs.get((trial, name), b"")) for name in ("stdout", "stderr")}
        return CallbackAnswer(trial in self.canceled, len(await self._metrics_of(trial)), sizes)

    async def _take(self, trial: str, event: KeeperEvent) -> None:
        now = self.kept[trial]
        if isinstance(event, Reported):
            if event.index == len(await self._metrics_of(trial)):
                self._keep(Metric(trial, now.attempt, event.index, event.kind, event.sequence, event.value, event.time))
        elif isinstance(event, Output):
            had = self.outputs.get((trial, event.stream), b"")
            self.outputs[trial, event.stream] = had + event.data[max(0, len(had) - event.offset) :]
        elif isinstance(event, Started) and now.started is None:
            self.put(replace(now, state=TrialState.RUNNING, started=event.time))
        elif isinstance(event, Exited) and not now.state.ended:
            state = TrialState.SUCCEEDED if event.code == 0 else TrialState.FAILED
            self.put(replace(now, state=state, ended=event.time))

    def _keep(self, metric: Metric) -> None:
        self.reported.append(metric)
        self.revision += 1
        self.changes.publish(metric)
        if metric.kind is MetricKind.FINAL:
            self.put(replace(self.kept[metric.trial], value=metric.value))

    def callback_token(self, job: str) -> str:
        return hmac.new(b"the experiment's key", job.encode(), "sha256").hexdigest()

    async def starts(self) -> list[dict[str, Any]]:
        return [{"time": 900.0, "nnilite": "1"}, {"time": 1001.0, "nnilite": "2"}]

    async def recorded_workers(self) -> list[dict[str, Any]]:
        return [{"hosts": {"a": 1.0}, "python": "3.12.1", "executable": "/py", "system": "Linux", "packages": {}}]

    async def log(self, name: str, offset: int, limit: int) -> Piece:
        return _piece(f"log of the {name}\n".encode(), offset, limit)

    async def output(self, trial: str, attempt: int | None, stream: str, offset: int, limit: int) -> Piece:
        self.known(trial)
        return _piece(self.outputs.get((trial, stream), b""), offset, limit)

    async def directory(self, trial: str) -> Path:
        self.known(trial)
        return self.folder / "trials" / trial

    async def list_files(self, trial: str, elsewhere: bool) -> FileListing:
        self.fetches.append("listed" if elsewhere else "here")
        return list_folder(await self.directory(trial))

    async def fetch_files(self, trial: str) -> None:
        self.fetches.append("all")

    async def fetch_file(self, trial: str, path: str) -> None:
        self.fetches.append(path)

    async def read_ended(self) -> AsyncIterator[Trial]:
        try:
            for number, trial in enumerate(list(self.kept.values())):
                if number == self.export_ends_after:
                    raise StoreError("the disk is gone")
                if trial.state.ended:
                    yield trial
        finally:
            self.exports_closed += 1

    async def import_data(self, data: Sequence[tuple[Any, Any]]) -> tuple[int, int, str]:
        self.pairs.extend(data)
        return len(data), 0, self.import_warning

    async def imported(self) -> Sequence[Sequence[tuple[Any, Any]]]:
        return [self.pairs]

    def code_package(self, digest: str) -> Path:
        path = self.folder / "code" / f"{digest}.tar.gz"
        if not path.is_file():
            raise NotFound("there is no such code package")
        return path

    def keeper(self) -> Path:
        return self.folder / "keeper.pyz"

    def subscribe(self) -> Subscription:
        return self.changes.subscribe()

    async def others(self) -> Sequence[Listed]:
        return [Listed(self.experiment_id, "a fake", "RUNNING", 8080, pid=1)]


def _piece(text: bytes, offset: int, limit: int) -> Piece:
    start = max(0, len(text) + offset) if offset < 0 else min(offset, len(text))
    return Piece(text[start : start + limit], start, len(text))


def filled(folder: Path, token: str = FakeBackend.token) -> FakeBackend:
    """A fake with a running trial `Run01`, an ended one `End02`, and files of the latter."""
    backend = FakeBackend(folder, token)
    backend.put(Trial("Run01", 0, {"x": 0.25}, 0, state=TrialState.RUNNING, created=1000.0, started=1002.0))
    ended = Trial("End02", 1, {"x": 0.5}, 1, state=TrialState.SUCCEEDED, created=1001.0, started=1002.0)
    ended = backend.put(replace(ended, ended=1010.0, value={"default": float("nan"), "loss": 2}))
    backend.reported.append(Metric("End02", 0, 0, MetricKind.PERIODICAL, 0, 0.5, 1003.0))
    backend.reported.append(Metric("End02", 0, 1, MetricKind.FINAL, 0, ended.value, 1009.0))
    home = folder / "trials" / "End02"
    (home / "plots").mkdir(parents=True)
    (home / "trial.stdout").write_text("hello\n")
    (home / "plots" / "a b'\"$\n.txt").write_text("odd name")
    (home / "page.html").write_text("<script>alert(1)</script>")
    (home / ".nni").mkdir()
    (home / ".nni" / "spec.json").write_text('{"token": "trial-secret"}')
    (folder / "code").mkdir()
    (folder / "code" / ("a" * 64 + ".tar.gz")).write_bytes(b"packed")
    (folder / "keeper.pyz").write_bytes(b"keeper")
    (folder / "outside.txt").write_text("outside-secret")
    return backend
