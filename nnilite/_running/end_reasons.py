"""Why an experiment or its trials failed, in sentences for the program that has started it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nnilite._logging.terminal_text import escape_control
from nnilite._running.manager_client import Client
from nnilite.records import ExperimentState, TrialState


def explain_error(profile: Mapping[str, Any]) -> str:
    """Return why an experiment ended in ERROR, with the traceback of its tuner; "" if it did not."""
    if profile["state"] != ExperimentState.ERROR.value:
        return ""
    return escape_control(f"Experiment {profile['id']} ended in ERROR: {profile['reason']}")


def explain_failure(find_reader: Callable[[], Client], profile: Mapping[str, Any]) -> str:
    """Return why a trial failed, as an example; "" if none did.

    If no trial has succeeded it is the first one, whose failure is mostly that of all, and else the last one.
    `find_reader` returns what knows the trials; it is called only if one failed.
    """
    counts = profile.get("counts", {})
    if not counts.get(TrialState.FAILED.value):
        return ""
    descending = bool(counts.get(TrialState.SUCCEEDED.value))
    for trial in find_reader().trials(states=[TrialState.FAILED.value], sort="ended", descending=descending, limit=1):
        cure = f"`nnictl log stderr {profile['id']} --trial {trial['id']}` shows what it wrote."
        return escape_control(f"Trial {trial['id']} failed: {trial['reason']}\n{cure}")
    return ""
