"""The section `trainingService: {platform: redis}`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from nnilite.errors import ConfigError, Place
from nnilite.service import CHECKPOINTS_STAY, IgnoredOption
from nnilite.units import Bytes, Duration, FilePath, PositiveInt, Secret
from nnilite_redis._connection import EXAMPLE, RedisAddress

PREFIX = "nnilite"
PROCESSORS = 2
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_LABEL = re.compile(r"[^\s,]{1,100}")
_SHORTEST_PERIOD_S = 3
_LARGEST_VALUE_BYTES = 500 * 1024**2


def _about(description: str) -> dict[str, str]:
    return {"description": description}


@dataclass(frozen=True)
class BucketConfig:
    """An S3-compatible store. Its keys are taken from the environment of the manager and of each worker."""

    bucket: str = field(metadata=_about("the bucket; keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"))
    prefix: str = field(default="", metadata=_about("what the names of our objects begin with"))
    endpoint: str | None = field(default=None, metadata=_about("its URL, where it is not that of AWS"))
    region: str | None = field(default=None, metadata=_about("the region"))


@dataclass(frozen=True)
class RedisConfig:
    """The Redis service's settings. Raises: ConfigError where two of them do not fit together."""

    redis: str = field(metadata=_about(f"the server, without the password: {EXAMPLE}; rediss:// is TLS"))
    user: str | None = field(
        default=None, metadata=_about("ACL user of the manager; the server's default user if not set")
    )
    password: Secret | None = field(
        default=None, metadata=_about('better "${env:NNILITE_REDIS_PASSWORD}" than in clear')
    )
    ca_file: FilePath | None = field(
        default=None, metadata=_about("the authority that signed the server's certificate, where it is one of your own")
    )
    prefix: str = field(default=PREFIX, metadata=_about("what all keys begin with: names the pool of workers"))
    worker_labels: list[str] = field(
        default_factory=list, metadata=_about("trials run only on workers that have all of these labels")
    )
    worker_healthy_period: Duration = field(
        default=300, metadata=_about("a worker that is silent for so long is unhealthy: its trials are tried elsewhere")
    )
    worker_processors: PositiveInt | None = field(
        default=None,
        metadata=_about(
            "how many trials of this experiment a worker may run at once; else its --processors alone counts"
        ),
    )
    max_slots: PositiveInt | None = field(
        default=None,
        metadata=_about("how many trials run at once in this pool, in all experiments that set this; default: any"),
    )
    priority: int = field(
        default=0, metadata=_about("experiments of a higher one are served first, also a negative one")
    )
    storage: BucketConfig | None = field(
        default=None, metadata=_about("through which code, outputs and checkpoints go; through Redis if not set")
    )
    redis_size_limit: Bytes = field(
        default=20 * 1024**2, metadata=_about("the largest file that may go through Redis, at most 500mb")
    )
    checkpoint_every: Duration = field(
        default=60, metadata=_about("how often changed checkpoints are brought to where other workers find them")
    )
    keep: Literal["nothing", "outputs"] = field(
        default="outputs", metadata=_about("what stays on the workers when the experiment has stopped")
    )
    orphan_after: Duration = field(
        default=7 * 86400, metadata=_about("a trial that hears nothing of its manager for so long is ended")
    )
    worker_mode: Literal["singlenode", "multinode"] = field(
        default="multinode", metadata=_about("singlenode: only workers on the manager's own machine get trials")
    )
    worker_remote_processors: PositiveInt | None = field(
        default=None, metadata=_about("the name in Driverless AI of workerProcessors")
    )
    worker_healthy_response_period: Duration | None = field(
        default=None, metadata=_about("the name in Driverless AI of workerHealthyPeriod")
    )

    def __post_init__(self) -> None:
        self._take("worker_processors", self.worker_remote_processors, "workerRemoteProcessors", None)
        self._take("worker_healthy_period", self.worker_healthy_response_period, "workerHealthyResponsePeriod", 300)
        _ = self.address
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(f"{self.prefix!r} cannot be used: letters, digits and _ . : - can", Place(field="prefix"))
        for label in self.worker_labels:
            check_label(label, Place(field="workerLabels"))
        if self.worker_healthy_period < _SHORTEST_PERIOD_S:
            raise ConfigError(f"must be at least {_SHORTEST_PERIOD_S} s", Place(field="workerHealthyPeriod"))
        if self.redis_size_limit > _LARGEST_VALUE_BYTES:
            raise ConfigError("must be at most 500mb: Redis holds no larger values", Place(field="redisSizeLimit"))

    def _take(self, name: str, value: Any, alias: str, default: Any) -> None:
        """Both names of a setting are accepted, but not two values."""
        if value is None:
            return
        present = getattr(self, name)
        if present not in (default, value):
            raise ConfigError(
                f"means the same as another field, which is {present}: give one of them", Place(field=alias)
            )
        object.__setattr__(self, name, value)

    @property
    def address(self) -> RedisAddress:
        """Where the server is, and how one signs in. Raises: ConfigError."""
        return RedisAddress(self.redis, self.user or "", str(self.password or ""), self.ca_file)


def check_label(label: str, place: Place) -> None:
    """Raises: ConfigError for what cannot be a label."""
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"{label!r} cannot be a label: it must have no spaces and no commas, such as gpu=a100", place)


IGNORED = (
    IgnoredOption("callback", "trials report through Redis"),
    IgnoredOption("nniManagerIp", "trials report through Redis, and nobody calls the manager"),
    *CHECKPOINTS_STAY,
    IgnoredOption(
        "redisSizeLimit",
        "files go through the bucket of storage",
        "with `storage`",
        lambda config, settings: config.storage is not None,
    ),
)
"""What has no effect on the workers of a pool."""
