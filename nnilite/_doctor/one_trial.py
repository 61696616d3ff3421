"""The doctor's experiments of one trial: their start, the wait for the trial, and their removal."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nnilite._experiments import registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import launch, managers
from nnilite._running.launch import ManagerOptions
from nnilite.config import CheckedConfig

_POLL_S = 0.2


@contextlib.contextmanager
def started(config: CheckedConfig, options: ManagerOptions) -> Iterator[RegistryEntry]:
    """Start the experiment, and remove it at the end of the block. What its platform holds is freed by the stop."""
    # The experiment must end with the doctor, even if the doctor is killed.
    entry = launch.create(config, options=options, detach=False)
    try:
        yield entry
    finally:
        current = replace(entry, alive=registry.is_alive(entry.directory))
        if current.alive:
            managers.stop(current)
        shutil.rmtree(entry.directory, ignore_errors=True)
        registry.remove(entry.id)


def wait_for_end(entry: RegistryEntry, limit_s: float, run_s: float | None = None) -> dict[str, Any]:
    """Return the trial once it has ended, or as it is after `limit_s` seconds, or after it has run for `run_s`."""
    now = time.monotonic()
    deadline, is_running = now + limit_s, False
    with managers.connect(entry) as manager:
        while True:
            trials = list(manager.trials())
            profile = manager.profile()
            trial = trials[0] if trials else {"state": "WAITING", "reason": profile["reason"]}
            if run_s is not None and trial["state"] == "RUNNING" and not is_running:
                deadline, is_running = time.monotonic() + run_s, True
            over = profile["state"] in ("ERROR", "DONE", "STOPPED")
            if time.monotonic() > deadline or trial.get("ended") or (over and not trials):
                return dict(trial)
            time.sleep(_POLL_S)


def find_troubles(entry: RegistryEntry, limit_s: float) -> list[str]:
    """Return what is wrong with hosts of the experiment, once all of them have been tried, or the time is over."""
    deadline = time.monotonic() + limit_s
    with managers.connect(entry) as manager:
        while True:
            hosts = manager.profile()["hosts"]
            if all(host["state"] == "up" or host["reason"] for host in hosts) or time.monotonic() > deadline:
                return [f"{host['name']} {_describe(host)}" for host in hosts if host["reason"]]
            time.sleep(_POLL_S)


def _describe(host: dict[str, Any]) -> str:
    return str(host["reason"]) if host["state"] == "up" else f"is {host['state']}: {host['reason']}"


def read_notices(entry: RegistryEntry) -> list[str]:
    """Return what a person should know about the experiment."""
    with managers.connect(entry) as manager:
        return list(manager.profile()["notices"])


def cure_in(reason: str) -> str:
    """Return what a reason says is to be done, which follows its last semicolon; "" if it says nothing."""
    return reason.rpartition("; ")[2] if "; " in reason else ""
