"""The section `trainingService: {platform: aml}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from nnilite.errors import ConfigError
from nnilite.records import Json
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, callback_is_unused
from nnilite.services.section_fields import (
    EnvironmentVariables,
    ManagerIp,
    TrialGpuNumber,
    check_variables,
    field_place,
)
from nnilite.units import Duration, FilePath, MemoryMb, NonNegativeInt, PositiveInt, Secret

SERVERLESS = "serverless"
DEFAULT_IMAGE = "msranni/nni:latest"
_ENVIRONMENT = re.compile(r"(azureml:)?[\w.-]+:[\w.-]+|azureml://registries/\S+")
_EXPERIMENT = re.compile(r"[A-Za-z0-9_][\w-]{0,254}")


@dataclass(frozen=True, kw_only=True)
class AmlDistribution:
    """How the processes of a trial on several nodes find each other."""

    type: Annotated[
        Literal["PyTorch", "MPI", "TensorFlow"],
        "the kind of variables that each process gets; the process of rank 0 reports for the trial",
    ]
    process_count_per_instance: Annotated[PositiveInt, "processes on each node, for PyTorch and MPI"] = 1
    worker_count: Annotated[PositiveInt, "workers, for TensorFlow; worker 0 reports"] = 1
    parameter_server_count: Annotated[NonNegativeInt, "parameter servers, for TensorFlow"] = 0


@dataclass(frozen=True, kw_only=True)
class AmlIdentity:
    """The identity with which the trial's code calls Azure."""

    type: Annotated[
        Literal["managed", "user", "token"],
        "`managed`: the managed identity of the compute target; `user`: the user who submitted the job; "
        "`token`: the job's own token for the workspace",
    ]
    client_id: Annotated[str | None, "the client ID for type `managed`, if there are several"] = None


@dataclass(frozen=True, kw_only=True)
class AmlConfig:
    """The workspace, the login, and what each trial gets."""

    subscription_id: Annotated[str, "the subscription of the workspace"]
    resource_group: Annotated[str, "the resource group of the workspace"]
    workspace_name: Annotated[str, "the workspace"]
    compute_target: Annotated[
        str, "a compute cluster or compute instance of the workspace; default: serverless compute"
    ] = SERVERLESS
    docker_image: Annotated[str, "an image with Python 3.8 or later"] = DEFAULT_IMAGE
    conda_file: Annotated[FilePath | None, "a conda environment file; Azure installs it over `dockerImage`, once"] = (
        None
    )
    environment: Annotated[
        str | None, "instead of both: an environment of the workspace as NAME:VERSION, or one of a registry"
    ] = None
    instance_type: Annotated[
        str | None, "the VM size; needed for serverless compute, such as Standard_NC24ads_A100_v4"
    ] = None
    instance_count: Annotated[PositiveInt, "number of nodes of each trial; more than 1 needs `distribution`"] = 1
    distribution: Annotated[AmlDistribution | None, "how the processes of trials on several nodes find each other"] = (
        None
    )
    low_priority: Annotated[bool, "use cheap nodes, which Azure may take away at any time; trials are retried"] = False
    shm_size: Annotated[MemoryMb | None, "of /dev/shm"] = None
    environment_variables: EnvironmentVariables = field(default_factory=dict)
    identity: Annotated[AmlIdentity | None, "the identity with which the trial's code calls Azure"] = None
    experiment_name: Annotated[
        str | None, "the name under which Azure shows the jobs; default: `nni_exp_` and the id"
    ] = None
    tags: Annotated[dict[str, str], "tags of all jobs"] = field(default_factory=dict)
    checkpoint_datastore: Annotated[
        str, "the datastore where checkpoints outlive a job; an empty text keeps them only with the job"
    ] = "workspaceblobstore"
    tenant_id: Annotated[str | None, "the tenant of a service principal that logs in"] = None
    client_id: Annotated[str | None, "the client of a service principal, or of a managed identity of this machine"] = (
        None
    )
    client_secret: Annotated[
        Secret | None, 'the secret of a service principal; better "${env:AZURE_CLIENT_SECRET}"'
    ] = None
    cloud: Annotated[Literal["AzureCloud", "AzureChinaCloud", "AzureUSGovernment"], "the Azure cloud"] = "AzureCloud"
    request_timeout: Annotated[Duration, "how long Azure may take for one answer"] = 30
    nni_manager_ip: ManagerIp = None
    trial_gpu_number: TrialGpuNumber = None
    max_trial_number_per_gpu: Annotated[
        PositiveInt, "accepted, as in NNI; has no effect: Azure gives whole nodes to each job"
    ] = 1

    def __post_init__(self) -> None:
        for name in ("subscription_id", "resource_group", "workspace_name"):
            if not getattr(self, name).strip() or "/" in getattr(self, name):
                raise ConfigError("must be a name without slashes", field_place(name))
        if self.environment is not None and not _ENVIRONMENT.fullmatch(self.environment):
            raise ConfigError(
                f"{self.environment!r} must be NAME:VERSION, or azureml://registries/...", field_place("environment")
            )
        if self.environment is not None and (self.conda_file or self.docker_image != DEFAULT_IMAGE):
            raise ConfigError("replaces dockerImage and condaFile: set one of them", field_place("environment"))
        if self.experiment_name is not None and not _EXPERIMENT.fullmatch(self.experiment_name):
            raise ConfigError("may have only letters, digits, _ and -, at most 255", field_place("experiment_name"))
        self._check_nodes()
        self._check_login()
        check_variables(self.environment_variables)

    def _check_nodes(self) -> None:
        given = self.distribution
        if self.serverless and not self.instance_type:
            raise ConfigError("is needed for serverless compute, such as Standard_DS3_v2", field_place("instance_type"))
        if self.instance_count > 1 and given is None:
            raise ConfigError(
                "is needed for several nodes: it says how their processes find each other; or remove instanceCount, "
                "and set distributed",
                field_place("distribution"),
            )
        if given is not None and given.type == "TensorFlow":
            wanted = given.worker_count + given.parameter_server_count
            if wanted != self.instance_count:
                raise ConfigError(
                    f"must be {wanted}: a node for each worker and each parameter server", field_place("instance_count")
                )

    def _check_login(self) -> None:
        if self.client_secret is not None:
            for name in ("tenant_id", "client_id"):
                if not getattr(self, name):
                    raise ConfigError("is needed with clientSecret", field_place(name))

    @property
    def serverless(self) -> bool:
        """Return whether Azure finds the nodes itself."""
        return self.compute_target == SERVERLESS

    def read_conda_text(self) -> str:
        """Return the conda file's content, "" if there is none. Raises: ConfigError."""
        if self.conda_file is None:
            return ""
        try:
            return Path(self.conda_file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", field_place("conda_file")) from error


def _is_for(*types: str) -> Callable[[Any, Mapping[str, Json]], bool]:
    """Return the test whether the distribution is none of these types."""
    return lambda config, settings: config.distribution is not None and config.distribution.type not in types


IGNORED = (
    callback_is_unused(),
    *CHECKPOINTS_STAY,
    IgnoredOption("maxTrialNumberPerGpu", "Azure gives whole nodes to each job"),
    IgnoredOption(
        "distribution.processCountPerInstance",
        "TensorFlow has workerCount and parameterServerCount",
        "for TensorFlow",
        _is_for("PyTorch", "MPI"),
    ),
    *(
        IgnoredOption(
            f"distribution.{name}", "instanceCount says how many nodes there are", "except for TensorFlow", holds
        )
        for name, holds in (("workerCount", _is_for("TensorFlow")), ("parameterServerCount", _is_for("TensorFlow")))
    ),
    IgnoredOption(
        "identity.clientId",
        "clientId names a managed identity; set the type `managed`",
        "unless `type` is `managed`",
        lambda config, settings: config.identity is not None and config.identity.type != "managed",
    ),
)
"""What has no effect on Azure Machine Learning."""
