"""`nni.runtime.protocol`: where NNI 2 had the commands of advisors, and the function with which those answered."""

from __future__ import annotations

from .msg_dispatcher_base import MsgDispatcherBase
from .tuner_command_channel import CommandType

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["CommandType", "send"]


def send(command: CommandType, data: Any) -> None:
    """Answer a request for the advisor of this process, as its `send` does. Raises: RuntimeError if there is none."""
    if MsgDispatcherBase.of_this_process is None:
        raise RuntimeError(
            "there is no advisor here: derive one from nni.runtime.msg_dispatcher_base.MsgDispatcherBase"
        )
    MsgDispatcherBase.of_this_process.send(command, data)
