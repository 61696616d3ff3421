"""`nni.tools.nnictl.updater`: changes a running experiment."""

from __future__ import annotations

from typing import Any

from .command_calls import carry_out

__path__: list[str] = []  # see `nni._Elsewhere`

__all__ = ["import_data", "update_concurrency", "update_duration", "update_searchspace", "update_trialnum"]


def update_searchspace(args: Any) -> None:
    """Change the search space to that of the JSON file `args.filename`."""
    carry_out("update", "searchspace", args.id, "-f", args.filename)


def update_concurrency(args: Any) -> None:
    """Change how many trials run at once to `args.value`."""
    carry_out("update", "concurrency", args.id, "-v", args.value)


def update_duration(args: Any) -> None:
    """Change the time limit of the experiment to `args.value`, such as "2h"."""
    carry_out("update", "duration", args.id, "-v", args.value)


def update_trialnum(args: Any) -> None:
    """Change the number of trials to `args.value`."""
    carry_out("update", "trialnum", args.id, "-v", args.value)


def import_data(args: Any) -> None:
    """Give the tuner the results of the JSON file `args.filename`."""
    carry_out("experiment", "import", args.id, "-f", args.filename)
