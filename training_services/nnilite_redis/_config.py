"""The section `trainingService: {platform: redis}`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

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


@dataclass(frozen=True)
class BucketConfig:
    """An S3-compatible store. Its keys come from the environment of the manager and of each worker."""

    bucket: Annotated[str, "the bucket; keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"]
    prefix: Annotated[str, "the prefix of the names of all objects"] = ""
    endpoint: Annotated[str | None, "the URL of the store, if it is not AWS"] = None
    region: Annotated[str | None, "the region"] = None


@dataclass(frozen=True)
class RedisConfig:
    """The Redis service's settings. Raises: ConfigError where two of them do not fit together."""

    redis: Annotated[str, f"the server, without the password: {EXAMPLE}; rediss:// is TLS"]
    user: Annotated[str | None, "the ACL user of the manager; default: the server's default user"] = None
    password: Annotated[Secret | None, 'the password; better "${env:NNILITE_REDIS_PASSWORD}" than in clear text'] = None
    ca_file: Annotated[FilePath | None, "the authority that signed the server's certificate, if it is your own"] = None
    prefix: Annotated[str, "the prefix of all keys, which names the pool of workers"] = PREFIX
    worker_labels: Annotated[list[str], "trials run only on workers that have all of these labels"] = field(
        default_factory=list
    )
    worker_healthy_period: Annotated[
        Duration, "a worker that is silent for this time is unhealthy: its trials are retried elsewhere"
    ] = 300
    worker_processors: Annotated[
        PositiveInt | None,
        "how many trials of this experiment a worker may run at once; default: as many as its --processors allows",
    ] = None
    max_slots: Annotated[
        PositiveInt | None,
        "how many trials run at once in this pool, in all experiments that set this; default: no limit",
    ] = None
    priority: Annotated[int, "experiments with a higher number are served first; may be negative"] = 0
    storage: Annotated[BucketConfig | None, "the store for code, outputs and checkpoints; default: Redis"] = None
    redis_size_limit: Annotated[Bytes, "the largest file that may go through Redis, at most 500mb"] = 20 * 1024**2
    checkpoint_every: Annotated[Duration, "how often changed checkpoints are stored for other workers"] = 60
    keep: Annotated[Literal["nothing", "outputs"], "what to keep on the workers when the experiment has stopped"] = (
        "outputs"
    )
    orphan_after: Annotated[Duration, "a trial ends after this time without contact to its manager"] = 7 * 86400
    worker_mode: Annotated[
        Literal["singlenode", "multinode"], "singlenode: only workers on the manager's own machine get trials"
    ] = "multinode"
    worker_remote_processors: Annotated[PositiveInt | None, "Driverless AI's name for workerProcessors"] = None
    worker_healthy_response_period: Annotated[Duration | None, "Driverless AI's name for workerHealthyPeriod"] = None

    def __post_init__(self) -> None:
        self._accept_either("worker_processors", self.worker_remote_processors, "workerRemoteProcessors", None)
        self._accept_either(
            "worker_healthy_period", self.worker_healthy_response_period, "workerHealthyResponsePeriod", 300
        )
        _ = self.address
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(f"{self.prefix!r} is not valid; use letters, digits and _ . : -", Place(field="prefix"))
        for label in self.worker_labels:
            check_label(label, Place(field="workerLabels"))
        if self.worker_healthy_period < _SHORTEST_PERIOD_S:
            raise ConfigError(f"must be at least {_SHORTEST_PERIOD_S} s", Place(field="workerHealthyPeriod"))
        if self.redis_size_limit > _LARGEST_VALUE_BYTES:
            raise ConfigError("must be at most 500mb: Redis holds no larger values", Place(field="redisSizeLimit"))

    def _accept_either(self, name: str, value: Any, alias: str, default: Any) -> None:
        """Accept both names of a setting, but not two values."""
        if value is None:
            return
        present = getattr(self, name)
        if present not in (default, value):
            raise ConfigError(
                f"means the same as another field, which is {present}; set only one of them", Place(field=alias)
            )
        object.__setattr__(self, name, value)

    @property
    def address(self) -> RedisAddress:
        """Return the server's address and login. Raises: ConfigError."""
        return RedisAddress(self.redis, self.user or "", str(self.password or ""), self.ca_file)


def check_label(label: str, place: Place) -> None:
    """Check a label. Raises: ConfigError for an invalid one."""
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"{label!r} is not a valid label; use one without spaces and commas, such as gpu=a100", place)


IGNORED = (
    IgnoredOption("callback", "trials report through Redis"),
    IgnoredOption("nniManagerIp", "trials report through Redis, and never call the manager"),
    *CHECKPOINTS_STAY,
    IgnoredOption(
        "redisSizeLimit",
        "files go through the bucket of storage",
        "with `storage`",
        lambda config, settings: config.storage is not None,
    ),
)
"""What has no effect on the workers of a pool."""
