"""The training service of Determined AI: each attempt of a trial is an experiment there, with one trial in it.

_service     the service: submits, lists and removes
_config      the fields of the section
_convert     pure: from a job to the request
_slot_nodes  distributed trials: slots on several machines are a container on each, which is a node
_status      pure: from Determined's answers to the status of a job
_api         the calls to Determined's master that are needed
_checks      whether a trial could ever run
_watch       what becomes of one job
_log         the log of one job: its keeper's events, and what the trial has printed
_context     what a job gets as its context directory, and whether Determined would take it
_start       the program that runs in the container: it starts the keeper, heeds preemption, and keeps checkpoints
_bucket      the program there for checkpoints in an S3 bucket
_from_expconf    `nnictl config convert --from determined`
_expconf_space   ... and its hyperparameters, as a search space
"""

from nnilite_determined._config import DeterminedConfig
from nnilite_determined._from_expconf import convert
from nnilite_determined._service import DeterminedService

__all__ = ["DeterminedConfig", "DeterminedService", "convert"]
