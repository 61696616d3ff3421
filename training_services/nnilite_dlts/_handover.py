"""Build what a job is given: the instructions, the keeper and, if it does not come from elsewhere, the code.

DLTS has no secrets and accepts no files. A job has a command and environment variables; the command becomes a variable
of the container itself, so it must be short. The dashboard accepts a megabyte in all.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Literal

from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.service import Job, ServiceContext
from nnilite.services.bootstrap import Supply, command
from nnilite.services.delivery import CODE_VARIABLE, START_VARIABLE, Delivery, deliver, hidden, variable_names
from nnilite_dlts._config import DltsConfig
from nnilite_dlts._convert import Submission, gpus, params

LARGEST_BYTES = 1_000_000


def choose_source(config: DltsConfig, report: Json) -> Literal["manager", "job", "home"]:
    """Return where jobs get the code."""
    return config.code_from or ("job" if report == "stdout" else "manager")


def delivered(config: DltsConfig, context: ServiceContext, report: Json, callback: str) -> Delivery:
    """Read and pack the files for jobs. Blocks. Raises: ConfigError, CodeDirError, OSError."""
    source = choose_source(config, report)
    if source != "home":
        return deliver(context, source, report, None, callback)
    found = deliver(context, "manager", "rest", None, callback)
    return replace(found, code=Supply(file=str(context.package().archive)))


def request(job: Job, config: DltsConfig, delivery: Delivery, gpu_type: str) -> dict[str, Json]:
    """Return the request that submits a job. Raises: ConfigError if it is larger than DLTS accepts."""
    job = replace(job, gpus=gpus(config, job))
    instructions = delivery.instructions(job, work_folder(job), log_tells_end=True)
    variables = delivery.variables(instructions)
    found = params(job, config, Submission(job_command(job), variables, job.gpus or 0, gpu_type))
    size = len(json.dumps(found))
    if size > LARGEST_BYTES:
        with_code = CODE_VARIABLE in delivery.contents
        raise ConfigError(
            f"the parameters and the code of {job.name} make a request of {size} bytes, but DLTS takes {LARGEST_BYTES}"
            + (": exclude files with .nniignore, or let trials get the code elsewhere" if with_code else ""),
            Place(field="codeFrom") if with_code else None,
        )
    return found


def described(config: DltsConfig, job: Job) -> dict[str, Json]:
    """Return the body of a job without its secrets and long texts, and without packing anything."""
    source = choose_source(config, job.report)
    own = hidden(variable_names("job" if source == "job" else "manager"))
    return params(job, config, Submission(job_command(job), own, gpus(config, job) or 0, config.gpu_type or ""))


def work_folder(job: Job) -> str:
    """Return where a job writes: on the disk of its container."""
    return f"/tmp/nnilite/{job.name}"


def job_command(job: Job) -> str:
    """Return the command of a job."""
    return "exec " + shlex.join(command(f"env:{START_VARIABLE}", work_folder(job)))
