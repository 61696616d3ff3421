"""A training service without machines: attempts pass in simulated time, at prices and with interruptions of a trace.

_service        the service: each handle has the whole plan of its attempt
_config         the section `platform: simulated` of a config
_last_attempts  the last attempt of each trial: in files, and in memory
_trace          pure: the prices and interruptions of a file
_attempt_plan   pure: what becomes of an attempt, known from its start
_objective      a child process that asks the user's function for the curve of a trial
_generate       makes the file traces/spot.csv
"""

from nnilite_simulated._attempt_plan import AttemptPlan, WorkerGroup, made_plan
from nnilite_simulated._config import SimulatedConfig
from nnilite_simulated._service import SimulatedService
from nnilite_simulated._trace import Trace, read_trace, shipped

__all__ = [
    "AttemptPlan",
    "SimulatedConfig",
    "SimulatedService",
    "Trace",
    "WorkerGroup",
    "made_plan",
    "read_trace",
    "shipped",
]
