"""Build what is uploaded once for all jobs of an experiment: the code, the keeper, and a start script, in one archive.

Ray unpacks it once on each node, in a folder that all jobs there share. So it contains the code as an archive, and the
keeper makes a copy for each trial. The archive is named by its content: what Ray has is not sent again.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import zipfile
from dataclasses import dataclass
from pathlib import Path

from nnilite.codedir import CodePackage
from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import Job, ServiceContext
from nnilite.services.bootstrap import Instructions, Supply, command, environment, python_command
from nnilite_ray import _start
from nnilite_ray._config import RayConfig
from nnilite_ray._convert import DRIVER, START, make_trial_environment

LIMIT_BYTES = 100 * 1024**2
"""The limit of Ray's dashboard for one request: `ray_constants.DASHBOARD_CLIENT_MAX_SIZE`."""
_BESIDE_CODE_BYTES = 200_000  # the keeper, and how to start it
_STARTER = "nnilite-start"
_KEEPER = "nnilite-keeper.pyz"


@dataclass(frozen=True)
class RayPackage:
    """What all jobs of an experiment have in common."""

    name: str
    file: Path
    keeper_sha256: str
    code_hash: str
    code_from: str

    def instructions(self, job: Job, config: RayConfig, callback: str) -> dict[str, str]:
        """Return the environment variables that hold a job's instructions; they hold the trial's token."""
        more: dict[str, Json] = {"send_output": True, "env": make_trial_environment(job, config)}
        if callback:
            more["callback"] = callback
        if self.code_from == "manager":
            more["code"] = {"download": self.code_hash}
        code = Supply(file=f"{self.code_hash}.tar.gz") if self.code_from == "package" else None
        given = Instructions(
            job.spec_for("", **more),
            Supply(file=_KEEPER),
            self.keeper_sha256,
            code,
            self.code_hash if code else "",
            log_tells_end=True,
        )
        return environment(START, given.packed())


def check_size(config: RayConfig, context: ServiceContext) -> CodePackage:
    """Pack the code; blocks. Raises: ConfigError if it is more than Ray accepts, CodeDirError, OSError."""
    package = context.package()
    size = package.archive.stat().st_size
    if config.code_from == "package" and size + _BESIDE_CODE_BYTES > LIMIT_BYTES:
        raise ConfigError(
            f"the code is {size / 1024**2:.0f} MB when packed, and Ray's dashboard takes "
            f"{LIMIT_BYTES / 1024**2:.0f} MB at most: exclude files with .nniignore, or set codeFrom: manager",
            Place(field="codeFrom"),
        )
    return package


def make_package(config: RayConfig, context: ServiceContext) -> RayPackage:
    """Write the archive; blocks. Raises: ConfigError if it is more than Ray accepts, CodeDirError, OSError."""
    package, keeper = check_size(config, context), context.keeper.read_bytes()
    driver = Path(_start.__file__).with_name("_start_nodes.py").read_bytes()
    contents: dict[str, bytes] = {_STARTER: starter(config).encode(), DRIVER: driver, _KEEPER: keeper}
    if config.code_from == "package":
        contents[f"{package.hash}.tar.gz"] = package.archive.read_bytes()
    digest = hashlib.sha256()
    for name, data in contents.items():
        digest.update(f"{name} {len(data)}\n".encode() + data)
    name = f"_ray_pkg_{digest.hexdigest()[:32]}.zip"
    file = context.directory / "ray" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    _write(file, contents)
    return RayPackage(name, file, hashlib.sha256(keeper).hexdigest(), package.hash, config.code_from)


def starter(config: RayConfig) -> str:
    """Return the shell script that is the entrypoint of all jobs."""
    settings = {"work": config.work_directory or "", "checkpoints": config.checkpoint_directory or ""}
    program = Path(_start.__file__).read_text(encoding="utf-8")
    words = python_command(program, json.dumps(settings), *command(f"env:{START}", ".", files="."))
    return f"exec {shlex.join(words)}\n"


def _write(file: Path, contents: dict[str, bytes]) -> None:
    draft = file.with_suffix(".new")
    with zipfile.ZipFile(draft, "w") as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, data)
    draft.replace(file)
