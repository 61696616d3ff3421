"""The training service of OpenPAI clusters.

A trial is a job of OpenPAI's job protocol v2.

_service   the service: submits, polls, cancels and removes
_config    the fields of its section
_template  a job of the user's own (openpaiConfig), from which the jobs of trials are made
_roles     the task roles of a trial, wherever they were written
_role_nodes  distributed trials: the instances of a task role are the nodes
_convert   from a trial's job to a job of protocol v2
_delivery  where jobs get keeper and code: the job itself, a storage, or the manager
_api       the calls to OpenPAI's REST server
_checks    what can be known before anything starts: login, virtual cluster, storage
_status    what OpenPAI's answers tell of a job
_watch     what becomes of a job
_log       the log of a job
_classic   from the job files of OpenPAI before 1.0 to a section of a configuration
"""

from nnilite_openpai._classic import convert
from nnilite_openpai._config import OpenPaiConfig
from nnilite_openpai._service import OpenPaiService

__all__ = ["OpenPaiConfig", "OpenPaiService", "convert"]
