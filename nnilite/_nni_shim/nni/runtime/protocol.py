"""`nni.runtime.protocol`: where NNI 2 had the commands of advisors."""

from .tuner_command_channel import CommandType

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

__all__ = ["CommandType"]
