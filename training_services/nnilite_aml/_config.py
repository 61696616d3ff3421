"""The section `trainingService: {platform: aml}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption, callback_is_unused
from nnilite.units import Duration, FilePath, MemoryMb, NonNegativeInt, PositiveInt, Secret

SERVERLESS = "serverless"
DEFAULT_IMAGE = "msranni/nni:latest"
_ENVIRONMENT = re.compile(r"(azureml:)?[\w.-]+:[\w.-]+|azureml://registries/\S+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPERIMENT = re.compile(r"[A-Za-z0-9_][\w-]{0,254}")
_OURS = "NNILITE_"


def _about(description: str) -> dict[str, str]:
    return {"description": description}


@dataclass(frozen=True, kw_only=True)
class AmlDistribution:
    """How the processes of a trial on several nodes find each other."""

    type: Literal["PyTorch", "MPI", "TensorFlow"] = field(
        metadata=_about("which variables each process gets; the process of rank 0 reports for the trial")
    )
    process_count_per_instance: PositiveInt = field(
        default=1, metadata=_about("of PyTorch and MPI: processes on each node")
    )
    worker_count: PositiveInt = field(default=1, metadata=_about("of TensorFlow: workers; worker 0 reports"))
    parameter_server_count: NonNegativeInt = field(default=0, metadata=_about("of TensorFlow: parameter servers"))


@dataclass(frozen=True, kw_only=True)
class AmlIdentity:
    """As whom the trial's code calls Azure."""

    type: Literal["managed", "user", "token"] = field(
        metadata=_about(
            "`managed`: the managed identity of the compute target; `user`: whoever has submitted the job; "
            "`token`: the job's own token for the workspace"
        )
    )
    client_id: str | None = field(default=None, metadata=_about("of managed: which one, where there are several"))


@dataclass(frozen=True, kw_only=True)
class AmlConfig:
    """Which workspace it is, who logs in, and what each trial gets there."""

    subscription_id: str = field(metadata=_about("the subscription of the workspace"))
    resource_group: str = field(metadata=_about("the resource group of the workspace"))
    workspace_name: str = field(metadata=_about("the workspace"))
    compute_target: str = field(
        default=SERVERLESS,
        metadata=_about("a compute cluster or compute instance of the workspace; serverless compute if not set"),
    )
    docker_image: str = field(default=DEFAULT_IMAGE, metadata=_about("with Python 3.8 or later"))
    conda_file: FilePath | None = field(
        default=None, metadata=_about("a conda environment file: Azure installs it over `dockerImage`, once")
    )
    environment: str | None = field(
        default=None,
        metadata=_about("in place of both: an environment of the workspace as NAME:VERSION, or one of a registry"),
    )
    instance_type: str | None = field(
        default=None, metadata=_about("the VM size; needed for serverless compute, such as Standard_NC24ads_A100_v4")
    )
    instance_count: PositiveInt = field(default=1, metadata=_about("nodes of each trial; more need `distribution`"))
    distribution: AmlDistribution | None = field(default=None, metadata=_about("of trials on several nodes"))
    low_priority: bool = field(
        default=False, metadata=_about("cheap nodes, which Azure may take away at any time; trials are tried again")
    )
    shm_size: MemoryMb | None = field(default=None, metadata=_about("of /dev/shm"))
    environment_variables: dict[str, str] = field(default_factory=dict, metadata=_about("of trials"))
    identity: AmlIdentity | None = field(default=None, metadata=_about("as whom the trial's code calls Azure"))
    experiment_name: str | None = field(
        default=None, metadata=_about("under which jobs are shown on Azure; `nni_exp_` and the id if not set")
    )
    tags: dict[str, str] = field(default_factory=dict, metadata=_about("of all jobs"))
    checkpoint_datastore: str = field(
        default="workspaceblobstore",
        metadata=_about("the datastore where checkpoints outlive a job; an empty text keeps them with the job alone"),
    )
    tenant_id: str | None = field(default=None, metadata=_about("of a service principal that logs in"))
    client_id: str | None = field(
        default=None, metadata=_about("of a service principal, or of a managed identity of this machine")
    )
    client_secret: Secret | None = field(
        default=None, metadata=_about('of a service principal; better "${env:AZURE_CLIENT_SECRET}"')
    )
    cloud: Literal["AzureCloud", "AzureChinaCloud", "AzureUSGovernment"] = field(
        default="AzureCloud", metadata=_about("which of Azure's clouds")
    )
    request_timeout: Duration = field(default=30, metadata=_about("how long Azure may take for one answer"))
    nni_manager_ip: str | None = field(
        default=None, metadata=_about("where trials reach the manager, unless `callback` is log")
    )
    trial_gpu_number: NonNegativeInt | None = field(default=None, metadata=_about("overrides the top level's"))
    max_trial_number_per_gpu: PositiveInt = field(
        default=1, metadata=_about("accepted, as in NNI; has no effect: Azure gives whole nodes to each job")
    )

    def __post_init__(self) -> None:
        for name in ("subscription_id", "resource_group", "workspace_name"):
            if not getattr(self, name).strip() or "/" in getattr(self, name):
                raise ConfigError("must be a name, without any slash", _place(name))
        if self.environment is not None and not _ENVIRONMENT.fullmatch(self.environment):
            raise ConfigError(
                f"{self.environment!r} must be NAME:VERSION, or azureml://registries/...", _place("environment")
            )
        if self.environment is not None and (self.conda_file or self.docker_image != DEFAULT_IMAGE):
            raise ConfigError(
                "stands in the place of dockerImage and condaFile: give one of them", _place("environment")
            )
        if self.experiment_name is not None and not _EXPERIMENT.fullmatch(self.experiment_name):
            raise ConfigError("may have letters, digits, _ and -, 255 at most", _place("experiment_name"))
        self._check_nodes()
        self._check_login()
        for name in self.environment_variables:
            if not _VARIABLE.fullmatch(name) or name.startswith(_OURS):
                raise ConfigError(
                    f"{name!r} cannot be the name of a variable of trials", _place("environment_variables")
                )

    def _check_nodes(self) -> None:
        given = self.distribution
        if self.serverless and not self.instance_type:
            raise ConfigError("is needed for serverless compute, such as Standard_DS3_v2", _place("instance_type"))
        if self.instance_count > 1 and given is None:
            raise ConfigError(
                "is needed for several nodes: it says how their processes find each other", _place("distribution")
            )
        if given is not None and given.type == "TensorFlow":
            wanted = given.worker_count + given.parameter_server_count
            if wanted != self.instance_count:
                raise ConfigError(
                    f"must be {wanted}: a node for each worker and each parameter server", _place("instance_count")
                )

    def _check_login(self) -> None:
        if self.client_secret is not None:
            for name in ("tenant_id", "client_id"):
                if not getattr(self, name):
                    raise ConfigError("is needed with clientSecret", _place(name))

    @property
    def serverless(self) -> bool:
        """Whether Azure finds the nodes itself."""
        return self.compute_target == SERVERLESS

    def conda_text(self) -> str:
        """The conda file's content, "" if there is none. Raises: ConfigError."""
        if self.conda_file is None:
            return ""
        try:
            return Path(self.conda_file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", _place("conda_file")) from error


def _place(name: str) -> Place:
    first, *rest = name.split("_")
    return Place(field=first + "".join(part.title() for part in rest))


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
            f"distribution.{name}", "instanceCount says how many nodes there are", "but for TensorFlow", holds
        )
        for name, holds in (("workerCount", _is_for("TensorFlow")), ("parameterServerCount", _is_for("TensorFlow")))
    ),
    IgnoredOption(
        "identity.clientId",
        "it names a managed identity; set the type `managed`",
        "unless `type` is `managed`",
        lambda config, settings: config.identity is not None and config.identity.type != "managed",
    ),
)
"""What has no effect on Azure Machine Learning."""
