"""Check before anything starts: the login, the workspace, the instance type, the way back."""

from __future__ import annotations

import logging
import re

from nnilite.errors import ConfigError, JobRefused, NniliteError, NoCapacity, Place
from nnilite.platform_http import AccessRefused, CallRefused, Missing, Problem, Untrusted
from nnilite.services.section_fields import GPU_PLACE
from nnilite_dlc._api import DlcApi, DlcJob
from nnilite_dlc._config import DlcConfig

log = logging.getLogger(__name__)

_FULL = re.compile(r"Exceed|Insufficient|NotEnough|OutOfStock|LimitReached", re.IGNORECASE)
"""The beginnings and ends of codes for too many jobs or exhausted resources; DLC documents none."""


async def list_experiment_jobs(api: DlcApi, config: DlcConfig, experiment: str) -> list[DlcJob]:
    """Return the jobs that an experiment has already, asked for where it opens.

    Raises: ConfigError if the login, the workspace or the certificate is not good, Problem.
    """
    try:
        return await api.jobs(f"nni-{experiment}-")
    except AccessRefused as error:
        key = "AccessKeyId" not in error.reply
        raise ConfigError(str(error), Place(field="accessKeySecret" if key else "accessKeyId")) from error
    except Untrusted as error:
        raise ConfigError(str(error), Place(field="caCert")) from error
    except (Missing, CallRefused) as error:
        place = "workspaceId" if "workspace" in error.reply.lower() and config.workspace_id else "region"
        raise ConfigError(str(error), Place(field=place)) from error


async def check_resources(api: DlcApi, config: DlcConfig, gpus: int) -> None:
    """Check whether a pod could ever have this many GPUs. Raises: ConfigError, Problem."""
    spec = config.ecs_spec
    if isinstance(spec, dict):
        has, what = spec["gpu"], "the pod that ecsSpec describes"
        if has.isdecimal() and int(has) < gpus:
            raise _make_too_few(gpus, int(has), what)
        return
    try:
        found = await api.gpus_of(spec)
    except (AccessRefused, Missing, CallRefused) as error:
        log.info("could not check whether %s has %d GPUs: %s", spec, gpus, error)
        return
    if found is not None and found < gpus:
        raise _make_too_few(gpus, found, spec)


def _make_too_few(gpus: int, has: int, what: str) -> ConfigError:
    return ConfigError(f"is {gpus}, but {what} has {has or 'none'}: choose a larger one in ecsSpec", GPU_PLACE)


def make_refusal(problem: Problem) -> NniliteError:
    """Return the error for a job that DLC refuses: a lasting one ends the trial, a passing one lets it wait."""
    if isinstance(problem, CallRefused) and _FULL.search(problem.reply):
        return NoCapacity(str(problem))
    return JobRefused(str(problem)) if isinstance(problem, Missing) else problem
