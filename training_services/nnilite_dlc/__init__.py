"""The training service of PAI-DLC, the container service of Alibaba Cloud's Platform for AI: a trial is a job there.

_service     the service: submits, polls, cancels and removes
_config      the fields of its section: NNI's, and what a trial may need beyond them
_sdk_calls   calls of Alibaba's library in threads, with time limits and repetitions; its errors in ours
_api         the calls that are needed, with what is used of the answers
_submission_journal  which jobs DLC has been asked to make, noted on the manager's disk
_checks      what can be known before anything starts
_delivery    where jobs get keeper and code: the job itself, a storage that is mounted on both sides, or the manager
_job_fields  pure: from a trial's job to the fields of a job of DLC
_job_pods    distributed trials: the pods of a PyTorchJob are the nodes
_status      pure: from DLC's answers to the status of a job
_watch       what becomes of one job
_log         the log of one job, read window by window: the events of its keeper, and the trial's output between them
_windows     pure: what a window of a log has beyond the one before it

Alibaba's own library takes a second to import. So it is imported within functions, which run in threads.
"""

from nnilite.platform_http import need_module
from nnilite_dlc._config import DlcConfig
from nnilite_dlc._service import DlcService

need_module("alibabacloud_pai_dlc20201203")

__all__ = ["DlcConfig", "DlcService"]
