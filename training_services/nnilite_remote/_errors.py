"""Why a machine cannot be used."""

from __future__ import annotations

from nnilite.errors import ServiceError


class MachineError(ServiceError):
    """A machine cannot be used now. `lasting`: it will not work before a person has changed something."""

    def __init__(self, message: str, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


class LinkLost(MachineError):
    """The connection broke: whether what was asked has been done is not known."""
