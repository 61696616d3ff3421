"""The configs inside an experiment's config: its algorithms, limits, trackers and webhooks."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from nnilite.config._strict_attributes import Fields
from nnilite.errors import ConfigError, Place
from nnilite.records import NodeCounts, count_nodes
from nnilite.units import AnyPath, GivenBytes, GivenDirPath, PositiveInt, Secret

_MIB = 1024**2


@dataclass
class AlgorithmConfig(Fields):
    """A tuner, assessor or advisor: `name` of an installed one, or `class_name` of your own."""

    name: Annotated[str | None, "name of an installed algorithm, case does not matter; or use className"] = None
    class_name: Annotated[str | None, "`module.Class` of your own algorithm"] = None
    code_directory: Annotated[GivenDirPath | None, "where the module of className is; default: the config's folder"] = (
        None
    )
    class_args: Annotated[dict[str, Any], "keyword arguments of the algorithm, such as `optimize_mode: maximize`"] = (
        field(default_factory=dict)
    )

    def __bool__(self) -> bool:
        return bool(self.name or self.class_name or self.class_args or self.code_directory)


@dataclass
class CheckpointConfig(Fields):
    """The checkpoints to keep of what trials write to NNILITE_CHECKPOINT_DIR."""

    keep: Annotated[
        Literal["last", "best", "all", "none"],
        "last: the latest file of each trial; best: those of the best trial; all; none",
    ] = "all"
    max_size: Annotated[GivenBytes | None, "largest total size of all checkpoints; default: no limit"] = None


@dataclass
class ElasticNodes(Fields):
    """The nodes of a trial that continues with fewer when some are lost, and grows again."""

    min: Annotated[PositiveInt, "fewest nodes with which a trial continues"]
    max: Annotated[PositiveInt, "most nodes that a trial gets"]

    def __post_init__(self) -> None:
        if self.max < self.min:
            raise ConfigError(f"must be at least min, which is {self.min}", Place(field="max"))


@dataclass
class DistributedConfig(Fields):
    """A trial of several processes, on one machine or on several, the same way on every platform."""

    nodes: Annotated[PositiveInt | ElasticNodes, "machines of each trial"] = 1
    processes_per_node: Annotated[
        PositiveInt | Literal["gpu"], "processes on each node; `gpu`: one for each GPU of the node"
    ] = 1
    launcher: Annotated[
        Literal["torch", "mpi", "horovod", "jax", "tensorflow", "none"],
        "whose variables the processes get; none: the command runs once on each node, and starts the rest itself",
    ] = "torch"

    @property
    def counts(self) -> NodeCounts:
        nodes = self.nodes if isinstance(self.nodes, int) else {"min": self.nodes.min, "max": self.nodes.max}
        return count_nodes({"nodes": nodes})


@dataclass
class CodeLimits(Fields):
    """Limits for what is uploaded from the code directory."""

    max_files: Annotated[PositiveInt, "largest number of files"] = 2000
    max_size: Annotated[GivenBytes, "largest total size before packing"] = 300 * _MIB


@dataclass
class TrackerConfig(Fields):
    """A tracker in which each trial becomes a run, with its parameters, curves and result."""

    name: Annotated[Literal["mlflow", "tensorboard", "wandb"], "which tracker"]
    project: Annotated[str | None, "MLflow's experiment, or W&B's project; default: experimentName"] = None
    uri: Annotated[str | None, "mlflow: its server, such as http://host:5000"] = None
    directory: Annotated[
        AnyPath | None, "tensorboard, wandb: where files go; default: trackers/ in the experiment's folder"
    ] = None
    mode: Annotated[Literal["offline", "online"], "wandb: write files for `wandb sync`, or send at once"] = "offline"

    def __post_init__(self) -> None:
        if self.name == "mlflow" and not self.uri:
            raise ConfigError("is needed for mlflow: its tracking server, such as http://host:5000", Place(field="uri"))


@dataclass
class WebhookConfig(Fields):
    """An address that is notified of events by a POST with JSON."""

    url: Annotated[Secret, "where to send it; hidden like a secret, since anyone who knows it can often write there"]
    events: Annotated[
        list[Literal["best", "failure", "end"]],
        "what to send: a new best result, a failed trial, the end of the experiment",
    ] = field(default_factory=lambda: ["best", "failure", "end"])
    secret: Annotated[Secret | None, "signs what is sent; `whsec_` and base64, as by Standard Webhooks"] = None

    def __post_init__(self) -> None:
        if "${env:" not in self.url:
            _check_hook(self.url)
        if self.secret and "${env:" not in self.secret:
            try:
                size = len(base64.b64decode(self.secret.removeprefix("whsec_"), validate=True))
            except ValueError:
                size = 0
            if not 24 <= size <= 64:
                raise ConfigError("must be `whsec_` and base64 of 24 to 64 bytes", Place(field="secret"))


def _check_hook(url: str) -> None:
    """Check the address. Raises: ConfigError, which does not show the address."""
    try:
        parts = urlsplit(url)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong or not url.isprintable() or " " in url:
        raise ConfigError("must be an address such as https://host:port/path", Place(field="url"))
    if parts.username or parts.password or parts.fragment:
        raise ConfigError("must have neither a login nor a part after #", Place(field="url"))
