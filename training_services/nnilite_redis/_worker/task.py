"""Parse a manager's description of a job. It comes from outside, so that all of it is checked here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nnilite.errors import ServiceError
from nnilite.records import Json
from nnilite.service import Job
from nnilite_redis._convert import TASK_VERSION

_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
_TAKEN = ("lock", "name", "callback", "cache")
"""What a worker's folder has next to those of experiments."""
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


class BadTask(ServiceError):
    """A record that no manager of this version would write."""


@dataclass(frozen=True)
class WorkerTask:
    """One job as its worker knows it."""

    job: Job
    code: str  # name of the file
    keeper: str
    files: Mapping[str, Json]
    period_s: float
    orphan_s: float
    checkpoint_s: float  # 0: the trial has no checkpoints
    keep_outputs: bool

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def code_storage(self) -> Mapping[str, Json] | None:
        """The shared storage, if it is one for code."""
        storage = self.job.spec.get("storage")
        parts = storage.get("parts") if isinstance(storage, dict) else None
        return storage if isinstance(parts, list) and "code" in parts else None


def read_task(data: Mapping[str, Any]) -> WorkerTask:
    """Parse a task. Raises: BadTask."""
    if data.get("version") != TASK_VERSION:
        raise BadTask(
            f"the task has version {data.get('version')!r}; this worker knows {TASK_VERSION}: use the same nnilite"
        )
    spec, gpus = data.get("spec"), data.get("gpus")
    if not isinstance(spec, dict) or not (gpus is None or (isinstance(gpus, int) and 0 <= gpus < 10_000)):
        raise BadTask("the task has no specification")
    words = {name: _word(data, name, _NAME) for name in ("job", "experiment", "trial")}
    if words["experiment"] in _TAKEN:
        raise BadTask(f"{words['experiment']!r} cannot be the name of an experiment")
    grace_s = spec.get("grace_s") or 0
    if isinstance(grace_s, bool) or not isinstance(grace_s, (int, float)) or not 0 <= grace_s < 1e10:
        raise BadTask(f"the task's grace is {grace_s!r:.100}, which cannot be")
    numbers = {name: int(_number(data, name)) for name in ("attempt", "sequence")}
    job = Job(words["job"], words["experiment"], words["trial"], numbers["attempt"], numbers["sequence"], spec, gpus)
    return WorkerTask(
        job,
        code=_word(data, "code", _FILE),
        keeper=_word(data, "keeper", _FILE),
        files=data["files"] if isinstance(data.get("files"), dict) else {},
        period_s=max(1.0, _number(data, "period_s")),
        orphan_s=_number(data, "orphan_s"),
        checkpoint_s=_number(data, "checkpoint_s"),
        keep_outputs=data.get("keep") == "outputs",
    )


def _word(data: Mapping[str, Any], name: str, rule: re.Pattern[str]) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not rule.fullmatch(value):
        raise BadTask(f"{name} of the task is {value!r:.100}, which cannot be")
    return value


def _number(data: Mapping[str, Any], name: str) -> float:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e10:
        raise BadTask(f"{name} of the task is {value!r:.100}, which cannot be")
    return float(value)
