"""What an attempt does with the shared storage: nothing, unless its specification names one."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional, Union

    from .folder import Folder
    from .report_sender import ReportSender
    from .saver import Saver
    from .spec import Spec


class NoStorage:
    """A `Saver` for an attempt without a shared storage."""

    def __init__(self, checkpoint_dir: Optional[str]) -> None:
        self.checkpoint_dir = checkpoint_dir

    def fetch_code(self, name: str, wanted: Callable[[], bool]) -> Optional[str]:
        """Return None: the code comes from the manager."""
        return None

    def restore(self, wanted: Callable[[], bool]) -> None:
        """Do nothing: checkpoints are where the service keeps them."""

    def start(self, sender: ReportSender) -> None:
        """Do nothing: nothing is copied."""

    def finish(self, succeeded: bool, wanted: Callable[[], bool]) -> str:
        """Return "": nothing is missing."""
        return ""


def choose_saver(spec: Spec, folder: Folder) -> "Union[Saver, NoStorage]":
    """Return what keeps the attempt's files. The modules for storages are loaded only where one is used."""
    if not spec.storage:
        return NoStorage(spec.checkpoint_dir)
    from .saver import Saver

    return Saver(spec, folder)
