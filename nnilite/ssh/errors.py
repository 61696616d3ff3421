"""Why a machine cannot be used."""

from __future__ import annotations

from nnilite.errors import ServiceError


def get_error_text(error: BaseException) -> str:
    """Return what it says, or its kind where it says nothing, as a connection's EOFError does."""
    return str(error) or type(error).__name__


class MachineError(ServiceError):
    """A machine cannot be used now. `lasting`: it will not work before a person has changed something.

    `field`: the field of the config that the machine cannot do justice to; "" if it is none.
    """

    def __init__(self, message: str, lasting: bool = False, field: str = "") -> None:
        super().__init__(message)
        self.lasting = lasting
        self.field = field


class RunsWindows(MachineError):
    """A machine of a kind on which trials cannot run."""

    def __init__(self) -> None:
        super().__init__("runs Windows, on which trials cannot run yet: use Linux, macOS or WSL", lasting=True)


class LocalDiskFull(MachineError):
    """What a machine sends does not fit on the disk of this machine."""


class RemoteFileMissing(MachineError):
    """The machine does not have what was asked for (any more)."""


class OutcomeUnknown(MachineError):
    """Whether what was asked has been done is not known."""


class LinkLost(OutcomeUnknown):
    """The connection broke, or no answer came in time."""


# The old names, which go with version 0.2.
NoRoomHere = LocalDiskFull
NotThere = RemoteFileMissing
