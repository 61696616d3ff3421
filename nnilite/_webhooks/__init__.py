"""Sends new best results, failed trials and the experiment's end to the addresses in a config's `webhooks`.

Each address is served by a process of its own, which only reads the experiment's database, as those of trackers do:
it can hold up nothing, and what could not be sent is sent later.

webhook_events  what has happened in the database since the position that was reached
undelivered  what trackers and webhooks have not got yet
sending      one message: its JSON, its signature, and what an answer means

`nnilite._side_processes` starts these processes and keeps them running, as it does those of trackers.
"""

from __future__ import annotations

from pathlib import Path

from nnilite._side_processes.supervision import SupervisedProcess
from nnilite.config import CheckedConfig


def list_webhooks(directory: Path, config: CheckedConfig, maximize: bool) -> list[SupervisedProcess]:
    """Return the processes for the webhooks of a config. Their messages to the user go to the manager's log."""
    better = "maximize" if maximize else "minimize"
    return [
        SupervisedProcess(f"webhook {number + 1}", ("nnilite._webhooks", str(directory), str(number), better))
        for number, _ in enumerate(config.webhooks)
    ]
