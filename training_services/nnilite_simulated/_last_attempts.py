"""The last attempt of each trial: its handle in a file, and in memory what is asked of all trials at once.

The folder of one experiment may have the plans of ten thousand trials, so none of the others is read for one of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnilite.errors import ServiceError, describe_os_error
from nnilite.records import Json


class LastAttempts:
    """One service writes to its folder. `load` reads what an earlier manager has left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._end_s: dict[str, float] = {}  # by trial
        self._savers: defaultdict[str, set[str]] = defaultdict(set)  # trials by the folder of their checkpoint

    def load(self) -> None:
        self._end_s.clear()
        self._savers.clear()
        for place in self._folder.glob("*.json"):
            handle = read_object(place)
            if "plan" in handle:
                self._note(handle)

    def read(self, trial: str) -> dict[str, Any]:
        """Return the handle of a trial's last attempt, {} if there is none."""
        return read_object(self._folder / f"{trial}.json")

    def write(self, handle: dict[str, Json]) -> None:
        """Keep a handle in the place of the earlier one of its trial. Raises: ServiceError."""
        write_object(self._folder / f"{handle['trial']}.json", handle)
        self._note(handle)

    def count_running(self, now_s: float) -> int:
        """Return how many have not ended."""
        return sum(now_s < end_s for end_s in self._end_s.values())

    def saved_in(self, folder: str) -> Iterator[dict[str, Any]]:
        """Yield the handles of the trials whose checkpoint is in this folder."""
        return map(self.read, sorted(self._savers.get(folder, ())))

    def _note(self, handle: dict[str, Any]) -> None:
        self._end_s[handle["trial"]] = handle["plan"]["end_s"]
        if handle.get("saves") is not None:
            self._savers[str(handle["saves"])].add(handle["trial"])


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file, {} if there is none. Raises: ServiceError if it cannot be read."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ServiceError(f"{path} cannot be read ({error}); remove it if it is damaged") from error
    return found


def write_object(path: Path, content: Json) -> None:
    """Write the whole file or nothing. Raises: ServiceError."""
    draft = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(content), "utf-8")
        draft.replace(path)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {describe_os_error(error)}") from error
