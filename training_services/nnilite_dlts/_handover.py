"""What a job is handed over: the instructions, the keeper and, if it does not come from elsewhere, the code.

DLTS has no secrets and takes no files. A job has a command and environment variables; the command goes into a variable
of the container itself, so that it must be short. The dashboard takes a megabyte in all.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass

from nnilite.codedir import CodePackage
from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import Job, ServiceContext
from nnilite.services.bootstrap import Instructions, Supply, command, environment, pack
from nnilite_dlts._config import DltsConfig
from nnilite_dlts._convert import Submission, gpus, params

_LARGEST_BYTES = 1_000_000
_START, _KEEPER, _CODE = "NNILITE_START", "NNILITE_KEEPER", "NNILITE_CODE"
_HIDDEN = "********"
_IN_JOB = Supply(variable=_KEEPER, packed=True)


@dataclass(frozen=True)
class Handover:
    """What all jobs of an experiment have in common."""

    config: DltsConfig
    keeper: bytes  # packed
    keeper_sha256: str
    package: CodePackage
    code: bytes  # of the package, where jobs take it along
    source: str  # manager, job or home
    gpu_type: str

    def params(self, job: Job, callback: str) -> dict[str, Json]:
        """The body by which a job is submitted. Raises: ConfigError if it is larger than DLTS takes."""
        found = params(job, self.config, self._submission(job, callback))
        size = len(json.dumps(found))
        if size > _LARGEST_BYTES:
            raise ConfigError(
                f"parameters and code of {job.name} make a request of {size} bytes, and DLTS takes {_LARGEST_BYTES}"
                + (": leave files out by .nniignore, or let trials get the code elsewhere" if self.code else ""),
                Place(field="codeFrom") if self.code else None,
            )
        return found

    def _submission(self, job: Job, callback: str) -> Submission:
        work, wanted = work_folder(job), gpus(self.config, job)
        more: dict[str, Json] = {"callback": callback or None, "send_output": True}
        if self.source == "manager":
            more["code"] = {"download": self.package.hash}
        if wanted == 0:
            more["env"] = {"CUDA_VISIBLE_DEVICES": ""}
        code = {"job": Supply(variable=_CODE), "home": Supply(file=str(self.package.archive))}.get(self.source)
        instructions = Instructions(
            job.spec_for(work, **more), _IN_JOB, self.keeper_sha256, code, self.package.hash, log_tells_end=True
        )
        variables = {
            **environment(_START, instructions.packed()),
            **environment(_KEEPER, self.keeper),
            **(environment(_CODE, self.code) if self.source == "job" else {}),
        }
        return Submission(job_command(job), variables, wanted or 0, self.gpu_type)


def work_folder(job: Job) -> str:
    """Where a job writes: on the disk of its container."""
    return f"/tmp/nnilite/{job.name}"


def job_command(job: Job) -> str:
    """The command of a job."""
    return "exec " + shlex.join(command(f"env:{_START}", work_folder(job)))


def source_of(config: DltsConfig, report: Json) -> str:
    """Where jobs get the code: manager, job or home."""
    return config.code_from or ("job" if report == "stdout" else "manager")


def hand_over(config: DltsConfig, context: ServiceContext, report: Json, gpu_type: str) -> Handover:
    """Read and pack what jobs get. Blocks. Raises: CodeDirError, OSError."""
    source, package = source_of(config, report), context.package()
    keeper = context.keeper.read_bytes()
    code = package.archive.read_bytes() if source == "job" else b""
    return Handover(config, pack(keeper), hashlib.sha256(keeper).hexdigest(), package, code, source, gpu_type)


def described(config: DltsConfig, job: Job) -> dict[str, Json]:
    """The body of a job without what is secret or long, and without packing anything."""
    names = [_START, _KEEPER, *([_CODE] if source_of(config, job.spec.get("report")) == "job" else [])]
    wanted = gpus(config, job) or 0
    return params(
        job, config, Submission(job_command(job), dict.fromkeys(names, _HIDDEN), wanted, config.gpu_type or "")
    )
