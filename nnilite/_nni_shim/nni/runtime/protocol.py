"""`nni.runtime.protocol`: where NNI 2 had the commands of advisors."""

from .tuner_command_channel import CommandType

__all__ = ["CommandType"]
