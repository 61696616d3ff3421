"""The training service of Azure Machine Learning: each attempt of a trial is a command job of a workspace.

_service      the service: submits, polls, cancels and removes
_config       the fields of its section
_credentials  who calls: a service principal, a managed identity, or the user of `az login`
_calls        calls of Azure's library in threads, with time limits and repetitions; its errors in ours
_workspace    the calls that are needed
_checks       what can be known before anything starts: workspace, compute target, environment
_snapshot     the folder that goes up as the code of all jobs
_request      pure: from a trial's job to a command job
_job_nodes    distributed trials: the instances of a job are the nodes
_status       pure: from Azure's answers to the status of a job
_watch        what becomes of one job
_log          the log of one job: the events of its keeper, and the trial's output between them
_start        the program that a job starts on each node: it starts the keeper

Azure's own library takes seconds to import. So it is imported within functions, which run in threads.
"""

from nnilite.platform_http import need_module
from nnilite_aml._config import AmlConfig
from nnilite_aml._service import AmlService

need_module("azure.ai.ml")

__all__ = ["AmlConfig", "AmlService"]
