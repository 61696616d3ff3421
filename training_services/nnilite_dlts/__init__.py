"""The training service of DLTS (DLWorkspace), Microsoft's Deep Learning Training Service: a trial is one of its jobs.

_service   the service: submits, polls, cancels, removes
_watch     what becomes of one job
_config    the fields of its section
_api       the calls to the dashboard, each with a check of what it answers
_convert   pure: from a job to DLTS' parameters, and from what DLTS reports to a status
_handover  what a job is handed over: the keeper, its instructions and the code
_endpoint  where trials reach a manager that is itself a job of DLTS
_log       the log of a job
"""

from nnilite_dlts._config import DltsConfig
from nnilite_dlts._service import DltsService

__all__ = ["DltsConfig", "DltsService"]
