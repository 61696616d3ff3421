"""What running trials use, as it is shown: from their keepers, and from their hosts for the GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nnilite._answers.queries import TrialUsage
from nnilite._engine.live_trial import ActiveTrial
from nnilite._engine.usage_reports import UsageReport
from nnilite.records import Host, Json


def show_uses(
    known: Mapping[str, UsageReport], live: Mapping[str, ActiveTrial], hosts: Iterable[Host]
) -> dict[str, TrialUsage]:
    """Return the use by trial.

    A keeper reports which GPUs its trial has; their load is known from the service anyway.
    """
    gpus = {host.name: host.details.get("gpuUse") or () for host in hosts}
    found = {}
    for trial, last in known.items():
        attempt = live[trial].attempt
        theirs = _select_used(last, gpus.get("" if attempt is None else attempt.host, ()))
        found[trial] = TrialUsage(trial, last.attempt, last.time, last.used.processors, last.used.memory, theirs)
    return found


def _select_used(last: UsageReport, gpus: Iterable[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    return [gpu for gpu in gpus if gpu.get("index") in last.used.gpus]
