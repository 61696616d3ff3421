"""`nnictl create` as its users run it, on an example with other fields."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nnictl_runs import LIMIT_S, nnictl


def adapt(example: Path, target: Path, service: Mapping[str, Any], **fields: Any) -> Path:
    """Write an example with other fields, and others of its training service, to `target`."""
    config = {**yaml.safe_load(example.read_text("utf-8")), "trialCodeDirectory": str(example.parent), **fields}
    config["tuner"] = {**config["tuner"], "name": "Random"}  # it needs no libraries, which take longer than the trials
    config["trainingService"] = {**config["trainingService"], **service}
    target.write_text(yaml.safe_dump(config), "utf-8")
    return target


def create(config: Path, *more: str, code: int = 0, secret: str = "", limit_s: float = LIMIT_S) -> str:
    """Its standard output, or its complaint where it must end with another exit code; `secret` may be in neither."""
    ran = nnictl("create", "-c", str(config), *more, limit_s=limit_s)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert not secret or secret not in ran.stdout + ran.stderr
    return ran.stderr if code else ran.stdout
