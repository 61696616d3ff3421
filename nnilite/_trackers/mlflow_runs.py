"""One MLflow experiment for the search, and one MLflow run for each attempt of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from nnilite._trackers.runs import CurvePoint, Run, Runs

_TAG = "nnilite.run"
_BATCH = 1000  # the most that MLflow accepts at once
_PARAMETERS_MAX = 100  # MLflow's limit for parameters in one request
_VALUE_MAX = 500


class MlflowRuns(Runs):
    """Runs on the server, or in the folder or database, at `uri`. What a run has already is left out."""

    def __init__(self, uri: str, project: str) -> None:
        from mlflow.tracking import MlflowClient

        self._client: Any = MlflowClient(uri)
        known = self._client.get_experiment_by_name(project)
        self._experiment: str = known.experiment_id if known else self._client.create_experiment(project)
        self._in_files = urlsplit(self._client.tracking_uri).scheme in ("", "file")
        self._names: dict[str, _RunNames] = {}  # names of the curves of each run
        self._ids: dict[str, str] = {}
        self._sent: dict[str, dict[str, int]] = {}  # last step sent of each curve, for runs that existed before

    def begin(self, run: Run) -> None:
        from mlflow.entities import Param

        found = self._client.search_runs([self._experiment], f"tags.`{_TAG}` = '{run.key}'", max_results=1)
        if found:
            made = found[0]
            self._client.update_run(made.info.run_id, status="RUNNING")
        else:
            tags = {_TAG: run.key, "nnilite.trial": run.trial, "nnilite.experiment": run.experiment}
            made = self._client.create_run(self._experiment, int(run.created * 1000), tags, run_name=run.name)
        self._ids[run.key] = made.info.run_id
        self._names[run.key] = _RunNames(self._in_files)
        self._sent[run.key] = {key: self._last_step(made.info.run_id, key) for key in made.data.metrics}
        if not made.data.params:
            names = _RunNames(self._in_files)
            given = [Param(names.find(name), str(value)[:_VALUE_MAX]) for name, value in run.parameters.items()]
            for start in range(0, len(given), _PARAMETERS_MAX):
                self._client.log_batch(made.info.run_id, params=given[start : start + _PARAMETERS_MAX])

    def _last_step(self, run_id: str, key: str) -> int:
        return max((point.step for point in self._client.get_metric_history(run_id, key)), default=-1)

    def send(self, run: Run, points: Sequence[CurvePoint]) -> None:
        from mlflow.entities import Metric

        sent, names = self._sent[run.key], self._names[run.key]
        fresh = [
            Metric(name, point.value, int(point.time * 1000), point.step)
            for name, point in [(names.find(point.key), point) for point in points]
            if point.step > sent.get(name, -1)
        ]
        for start in range(0, len(fresh), _BATCH):
            self._client.log_batch(self._ids[run.key], metrics=fresh[start : start + _BATCH])

    def end(self, run: Run, state: str) -> None:
        run_id = self._ids.pop(run.key)
        del self._names[run.key]
        self._client.set_tag(run_id, "nnilite.state", state)
        ended = {"SUCCEEDED": "FINISHED", "FAILED": "FAILED", "LOST": "FAILED"}.get(state, "KILLED")
        self._client.set_terminated(run_id, ended)
        del self._sent[run.key]


class _RunNames:
    """The names of curves or parameters of one run. In a folder each is a file, so none may be a folder of another."""

    def __init__(self, in_files: bool) -> None:
        self._in_files = in_files
        self._found: dict[str, str] = {}  # MLflow's names by ours

    def find(self, name: str) -> str:
        """Return the name for MLflow: the same in each process, as long as names come in the same order."""
        if not self._in_files:
            return name
        if name not in self._found:
            free = name
            while any(_clash(free, one) for one in self._found.values()):
                free = free.replace("/", "_") if "/" in free else f"{free}_"
            self._found[name] = free
        return self._found[name]


def _clash(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
