"""`nni.runtime.tuner_command_channel`: the commands that advisors get and send."""

import sys
from enum import Enum

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

__all__ = ["CommandType"]


class CommandType(Enum):
    """NNI's commands between manager and dispatcher."""

    Initialize = "IN"
    RequestTrialJobs = "GE"
    ReportMetricData = "ME"
    UpdateSearchSpace = "SS"
    ImportData = "FD"
    AddCustomizedTrialJob = "AD"
    TrialEnd = "EN"
    Terminate = "TE"
    Ping = "PI"
    Initialized = "ID"
    NewTrialJob = "TR"
    SendTrialJobParameter = "SP"
    NoMoreTrialJobs = "NO"
    KillTrialJob = "KI"
    Error = "ER"


sys.modules[f"{__name__}.command_type"] = sys.modules[__name__]  # NNI 3 has them there
