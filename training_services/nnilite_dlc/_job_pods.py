"""Distributed trials on DLC: the pods of a PyTorchJob are the nodes.

Each pod has the address of the first one in MASTER_ADDR and its own number in RANK. Source: the environment variables
of DLC (alibabacloud.com/help/en/pai/general-environment-variables).
"""

from __future__ import annotations

from dataclasses import replace

from nnilite.errors import ConfigError, Place
from nnilite.service import Job, ServiceContext
from nnilite.services.node_places import on_its_nodes
from nnilite.services.section_fields import nodes_of
from nnilite_dlc._config import DEFAULT_JOB_TYPE, RANKED_JOB_TYPE, DlcConfig
from nnilite_dlc._job_fields import RANK_VARIABLE

_FIRST_VARIABLE = "MASTER_ADDR"


def spread(config: DlcConfig, context: ServiceContext) -> DlcConfig:
    """Return the section with a pod for each node of a distributed trial. Raises: ConfigError."""
    if not context.defaults.get("distributed"):
        return config
    nodes = nodes_of(context)
    if config.job_type not in (DEFAULT_JOB_TYPE, RANKED_JOB_TYPE):
        why = f"is {config.job_type}, and the pods of a distributed trial are those of a {RANKED_JOB_TYPE}; remove it"
        raise ConfigError(why, Place(field="jobType"))
    if config.pod_count not in (1, nodes):
        why = f"is {config.pod_count}, but distributed.nodes is {nodes}; remove it"
        raise ConfigError(why, Place(field="podCount"))
    if config.local_storage_mount_point is None:
        # The keeper that distributed trials need is larger than what DLC accepts with a job.
        why = (
            "is needed for distributed, whose keeper is too large to travel in a job of DLC; set it, nasDataSourceId "
            "and containerStorageMountPoint"
        )
        raise ConfigError(why, Place(field="localStorageMountPoint"))
    if config.code_from not in (None, "storage"):
        why = f"is {config.code_from}, but distributed trials have keeper and code from the storage; remove it"
        raise ConfigError(why, Place(field="codeFrom"))
    return replace(config, job_type=RANKED_JOB_TYPE, pod_count=nodes)


def place_nodes(job: Job, config: DlcConfig) -> Job:
    """Return the job with what its keepers need to know to find their places among the nodes.

    A pod that is alone may have no rank, and needs none.
    """
    return on_its_nodes(job, RANK_VARIABLE, [_FIRST_VARIABLE]) if config.pod_count > 1 else job
