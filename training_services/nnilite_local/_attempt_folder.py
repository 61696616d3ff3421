"""What only this service keeps in an attempt's folder: the handle, and the GPUs of the trial.

The trial may write to its folder, so the content of these files is checked like all other data from a trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nnilite.records import Json
from nnilite.service import Handle
from nnilite.services.keeper_folder import KeeperFolder


class AttemptFolder(KeeperFolder):
    """One attempt's folder on this machine; its note is the handle."""

    def handle(self) -> Handle | None:
        """Return the handle of the job that was started here, if any."""
        found = self.read_note()
        return found if found is not None and _is_handle(found, self.path) else None

    def gpus(self) -> list[int]:
        """Return the GPUs that the specification gives to the trial."""
        env = self.spec().get("env")
        visible = env.get("CUDA_VISIBLE_DEVICES") if isinstance(env, dict) else None
        return [int(index) for index in str(visible or "").split(",") if index.isdecimal()]


def _is_handle(handle: Mapping[str, Json], folder: Path) -> bool:
    pid, gpus = handle.get("pid"), handle.get("gpus")
    return (
        isinstance(handle.get("job"), str)
        and isinstance(handle.get("server", ""), str)
        and isinstance(handle.get("start"), str)
        and handle.get("directory") == str(folder)
        and _is_count(pid)
        and (gpus is None or (isinstance(gpus, list) and all(map(_is_count, gpus))))
    )


def _is_count(value: Json) -> bool:
    return type(value) is int and 0 <= value < 2**31
