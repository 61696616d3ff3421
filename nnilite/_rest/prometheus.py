"""The experiment in Prometheus' text format, for a server that collects such pages and draws them over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nnilite._answers.queries import Profile
from nnilite._rest.handler import ApiHandler
from nnilite.records import ExperimentState, TrialState
from nnilite.tuner import scalar

if TYPE_CHECKING:
    from prometheus_client import Metric


class PrometheusHandler(ApiHandler):
    """The profile as metrics. All states are listed, with 0 where nothing is, so that no line of a chart ends."""

    async def get(self) -> None:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(await self.backend.profile()))
        self.set_header("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)
        self.finish(generate_latest(registry))


class _Collected:
    """One profile, as prometheus_client asks for it."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def collect(self) -> Iterator[Metric]:
        profile = self._profile
        labels = {"experiment": profile.id, "name": profile.name}
        yield _states(
            "nnilite_experiment_state", "1 for the state of the experiment", labels, _flag_states(profile.state)
        )
        counts = {state.value: float(profile.counts.get(state, 0)) for state in TrialState}
        yield _states("nnilite_trials", "Trials by state", labels, counts)
        for name, text, value in _numbers(profile):
            yield _make_gauge(name, text, labels, value)


def _flag_states(current: ExperimentState) -> dict[str, float]:
    return {state.value: float(state is current) for state in ExperimentState}


def _numbers(profile: Profile) -> Iterator[tuple[str, str, float | None]]:
    """Name, description and value; None leaves a metric without a value."""
    limits = profile.limits
    yield "nnilite_best_value", "Best final metric so far", scalar(profile.best.value) if profile.best else None
    yield "nnilite_duration_seconds", "Time spent running, over all resumes", profile.duration_s
    yield "nnilite_created_seconds", "When the experiment was created, since the epoch", profile.created
    yield "nnilite_trial_concurrency", "How many trials may run at a time", limits.concurrency
    yield "nnilite_max_trial_number", "How many trials there will be; absent: no limit", limits.max_trials
    yield "nnilite_waiting_trials", "Trials that wait for a reason", sum(one.count for one in profile.waiting)
    down = sum(host.state != "up" for host in profile.hosts)
    yield "nnilite_hosts", "Machines of the training services", len(profile.hosts)
    yield "nnilite_hosts_down", "Machines of the training services that are not up", down


def _make_gauge(name: str, text: str, labels: dict[str, str], value: float | None) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    found = GaugeMetricFamily(name, text, labels=list(labels))
    if value is not None:
        found.add_metric(list(labels.values()), float(value))
    return found


def _states(name: str, text: str, labels: dict[str, str], values: dict[str, float]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    found = GaugeMetricFamily(name, text, labels=[*labels, "state"])
    for state, value in values.items():
        found.add_metric([*labels.values(), state], value)
    return found
