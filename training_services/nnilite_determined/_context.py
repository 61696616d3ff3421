"""Build the context directory of a job, and check whether Determined would accept it.

The specification holds the trial's token. Determined has no secrets for trials, so the token is in the context
directory, which users who may see the experiment can read, and not in the configuration, which its web page shows them.
The token opens the callback of this one job, and nothing once the trial has ended.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import Job, ServiceContext
from nnilite.services.bootstrap import Supply
from nnilite.services.delivery import CODE_VARIABLE, KEEPER_VARIABLE, Delivery, deliver
from nnilite.units import HIDDEN
from nnilite_determined import _bucket
from nnilite_determined._config import DeterminedConfig

FOLDER = "nnilite"
BUCKET = "bucket.py"
# Of Determined 0.38.1: determined.constants.MAX_CONTEXT_SIZE.
CONTEXT_LIMIT_BYTES = 95 * 1024**2
_REGULAR_FILE, _FOLDER = 48, 53
_SPEC_BYTES = 2 * 1024**2  # Reserved for the specification of one job, which is not known yet when the code is checked.
_KEEPER = Supply(file="keeper", packed=True)


def delivered(config: DeterminedConfig, context: ServiceContext, report: str, callback: str) -> Delivery:
    """Read keeper and code. Blocks.

    Raises: ConfigError if it is more than Determined accepts, CodeDirError, OSError.
    """
    delivery = deliver(context, "job" if config.code_from == "context" else "manager", report, None, callback)
    size = sum(map(len, delivery.contents.values()))
    if size + _SPEC_BYTES > CONTEXT_LIMIT_BYTES:
        raise ConfigError(
            f"the code is {size / 1024**2:.0f} MB when packed, and Determined takes a context directory of "
            f"{(CONTEXT_LIMIT_BYTES - _SPEC_BYTES) / 1024**2:.0f} MB at most: exclude files with .nniignore, or set "
            "codeFrom: manager",
            Place(field="codeFrom"),
        )
    files = {_KEEPER.file: delivery.contents[KEEPER_VARIABLE]}
    if delivery.code is None:
        return replace(delivery, keeper=_KEEPER, contents=files)
    archive = f"{delivery.code_hash}.tar.gz"
    files[archive] = delivery.contents[CODE_VARIABLE]
    return replace(delivery, keeper=_KEEPER, code=Supply(file=archive), contents=files)


def sample(config: DeterminedConfig) -> Delivery:
    """Return a delivery without contents, for a look at a job before anything is sent."""
    digest = "0" * 64
    archive = f"{digest}.tar.gz" if config.code_from == "context" else ""
    code = Supply(file=archive) if archive else None
    return Delivery(_KEEPER, digest, code, digest, contents={name: b"" for name in (_KEEPER.file, archive) if name})


def make_model_definition(job: Job, delivery: Delivery) -> list[dict[str, Json]]:
    """Return the files of a job. Raises: ConfigError if they are too large together."""
    instructions = delivery.instructions(job, "", log_tells_end=True)  # the bootstrap adds the folder
    bucket = Path(_bucket.__file__).read_bytes()
    files = {"spec": instructions.packed(), BUCKET: bucket, **delivery.contents}
    size = sum(map(len, files.values()))
    if size > CONTEXT_LIMIT_BYTES:
        raise ConfigError(
            f"the files of {job.name} are {size / 1024**2:.0f} MB, and Determined takes "
            f"{CONTEXT_LIMIT_BYTES / 1024**2:.0f} MB at most: its parameters are too large"
        )
    return [_entry(FOLDER, _FOLDER, 0o40700, b"")] + [
        _entry(f"{FOLDER}/{name}", _REGULAR_FILE, 0o100600, data) for name, data in files.items()
    ]


def hide_contents(files: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return the same without contents: one of them is secret, and none is readable."""
    return [{**entry, "content": HIDDEN} for entry in files]


def _entry(path: str, kind: int, mode: int, data: bytes) -> dict[str, Json]:
    content = base64.b64encode(data).decode("ascii")
    return {"path": path, "type": kind, "content": content, "mtime": "0", "mode": mode, "uid": 0, "gid": 0}
