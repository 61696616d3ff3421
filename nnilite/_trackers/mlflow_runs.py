"""One MLflow experiment for the search, and one MLflow run for each attempt of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnilite._trackers.runs import CurvePoint, Run, Runs

_TAG = "nnilite.run"
_BATCH = 1000  # the most that MLflow accepts at once
_PARAMETERS_MAX = 100  # of them, also at once
_VALUE_MAX = 500


class MlflowRuns(Runs):
    """Runs on the server, or in the folder or database, at `uri`. What a run has already is left out."""

    def __init__(self, uri: str, project: str) -> None:
        from mlflow.tracking import MlflowClient

        self._client: Any = MlflowClient(uri)
        known = self._client.get_experiment_by_name(project)
        self._experiment: str = known.experiment_id if known else self._client.create_experiment(project)
        self._ids: dict[str, str] = {}
        self._sent: dict[str, dict[str, int]] = {}  # of runs that were there before: the last step of each curve

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
        self._sent[run.key] = {key: self._last_step(made.info.run_id, key) for key in made.data.metrics}
        if not made.data.params:
            given = [Param(name, str(value)[:_VALUE_MAX]) for name, value in run.parameters.items()]
            for start in range(0, len(given), _PARAMETERS_MAX):
                self._client.log_batch(made.info.run_id, params=given[start : start + _PARAMETERS_MAX])

    def _last_step(self, run_id: str, key: str) -> int:
        return max((point.step for point in self._client.get_metric_history(run_id, key)), default=-1)

    def send(self, run: Run, points: Sequence[CurvePoint]) -> None:
        from mlflow.entities import Metric

        sent = self._sent[run.key]
        fresh = [
            Metric(point.key, point.value, int(point.time * 1000), point.step)
            for point in points
            if point.step > sent.get(point.key, -1)
        ]
        for start in range(0, len(fresh), _BATCH):
            self._client.log_batch(self._ids[run.key], metrics=fresh[start : start + _BATCH])

    def end(self, run: Run, state: str) -> None:
        run_id = self._ids.pop(run.key)
        self._client.set_tag(run_id, "nnilite.state", state)
        ended = {"SUCCEEDED": "FINISHED", "FAILED": "FAILED", "LOST": "FAILED"}.get(state, "KILLED")
        self._client.set_terminated(run_id, ended)
        del self._sent[run.key]
