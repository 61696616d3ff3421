"""Convert a job to the request that starts it, and Ray's answers to the state of the job. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from nnilite.errors import ConfigError
from nnilite.records import EndCause, Exited, Json
from nnilite.service import Job, JobState, JobStatus
from nnilite.services.keeper_folder import end_status
from nnilite.services.node_places import nodes_of_job
from nnilite.units import HIDDEN
from nnilite_ray._config import RayConfig
from nnilite_ray._resources import named_resources

START = "NNILITE_START"
DRIVER = "nnilite-nodes.py"
"""The file of the package that starts a trial on several nodes."""
NODE, NODES, FIRST_NODE = "NNILITE_NODE", "NNILITE_NODES", "NNILITE_FIRST_NODE"
"""The variables that it sets on each node: its number; the addresses of the first one."""
PENDING, RUNNING, STOPPED, SUCCEEDED, FAILED = "PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"
ENDED = (STOPPED, SUCCEEDED, FAILED)
OLDEST = (2, 10)
# Ray puts the runtime environment into one environment variable of the job, and Linux takes 128 kB for one.
_ENVIRONMENT_LIMIT_BYTES = 120_000
_STOP_EXTRA_S = 15  # the keeper's extra time after the grace period of its trial
_LEAST_CPUS = 0.001  # a bundle of a placement group cannot be empty
_STOP_VARIABLE = "RAY_JOB_STOP_WAIT_TIME_S"
_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_TIMEOUT = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
_COMMAND = "JOB_ENTRYPOINT_COMMAND_ERROR"
_ENVIRONMENT = "RUNTIME_ENV_SETUP_FAILURE"
_START_FAILURE = "JOB_SUPERVISOR_ACTOR_START_FAILURE"
_REASON_CHARS = 400
# In messages of Ray, the words of lines that say why a job was lost.
_TELLING = (
    "node has died",
    "node has failed",
    "was killed",
    "low on memory",
    "worker process has died",
    "out of memory",
)
# What the supervisor of a job in Ray is called. It is not documented, and has been the same since Ray 2.0.
_ENDING = (
    "import ray, sys; ray.init(namespace='SUPERVISOR_ACTOR_RAY_NAMESPACE'); "
    "ray.kill(ray.get_actor('_ray_internal_job_actor_' + sys.argv[1]))"
)


def gpus(config: RayConfig, job: Job) -> float | None:
    """Return the GPUs of a job; None: not set."""
    return config.entrypoint_num_gpus if config.entrypoint_num_gpus is not None else job.gpus


def resources(config: RayConfig, job: Job) -> dict[str, Json]:
    """Return the fields of a request that reserve resources."""
    wanted: dict[str, Json] = {
        "entrypoint_num_cpus": config.entrypoint_num_cpus,
        "entrypoint_num_gpus": gpus(config, job),
        "entrypoint_memory": config.entrypoint_memory * 1024**2 if config.entrypoint_memory else None,
        "entrypoint_resources": dict(config.entrypoint_resources),
    }
    # Ray runs jobs that ask for nothing on the head node.
    return {name: value for name, value in wanted.items() if value not in (None, 0, {})}


def make_bundle(config: RayConfig, job: Job) -> dict[str, float]:
    """Return what each node of a trial on several reserves, by Ray's names of resources."""
    return named_resources(resources(config, job)) or {"CPU": _LEAST_CPUS}


def request(job: Job, config: RayConfig, package: str, instructions: Mapping[str, str]) -> dict[str, Json]:
    """Return the body of `POST /api/jobs/`. `instructions`: the variables of the bootstrap. Raises: ConfigError."""
    given = dict(config.runtime_env or {})
    stop_s = int(float(job.spec.get("grace_s") or 0)) + _STOP_EXTRA_S
    variables = {**(given.get("env_vars") or {}), _STOP_VARIABLE: str(stop_s), **instructions}
    environment = {**given, "working_dir": f"gcs://{package}", "env_vars": variables}
    size = len(json.dumps(environment))
    if size > _ENVIRONMENT_LIMIT_BYTES:
        raise ConfigError(
            f"the parameters of {job.name} make an environment of {size} bytes, and Ray accepts "
            f"{_ENVIRONMENT_LIMIT_BYTES}: let the trial read large values from a file"
        )
    wanted = resources(config, job)
    entrypoint, metadata = "exec sh ./nnilite-start", _make_metadata(job)
    if job.spec.get("distributed"):
        # The driver reserves the nodes. It asks for nothing itself, so Ray runs it on the head node.
        counts = nodes_of_job(job)
        nodes = {"nodes": counts.fewest, "bundle": make_bundle(config, job)}
        if counts.is_elastic:
            nodes["most"] = counts.most
        entrypoint, wanted = f"exec python ./{DRIVER} {shlex.quote(json.dumps(nodes))}", {}
        metadata["nnilite_nodes"] = json.dumps(nodes)
    return {
        "submission_id": job.name,
        "entrypoint": entrypoint,
        **wanted,
        "runtime_env": environment,
        "metadata": {**metadata, "nnilite_resources": json.dumps(wanted)},
    }


def hidden(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return the same request without the trial's token."""
    environment = dict(body["runtime_env"])
    environment["env_vars"] = {
        name: HIDDEN if name.startswith(START) else value for name, value in environment["env_vars"].items()
    }
    return {**body, "runtime_env": environment}


def make_trial_environment(job: Job, config: RayConfig) -> dict[str, str]:
    """Return the variables that a trial gets in another way than the job itself.

    Ray passes the whole runtime environment on to drivers that the job starts. The environment of a job of nnilite
    holds the trial's token, so the trial gets one without it; nor does what it starts on Ray need the package with the
    keeper.
    """
    environment = dict(config.runtime_env or {})
    metadata = {"job_submission_id": job.name, **_make_metadata(job)}
    found = {_JOB_CONFIG: json.dumps({"runtime_env": environment, "metadata": metadata})}
    return {**found, "CUDA_VISIBLE_DEVICES": ""} if gpus(config, job) == 0 else found


def again(job: Mapping[str, Any]) -> dict[str, Json]:
    """Return the request that starts a job again which Ray has not started within its own time limit."""
    wanted = _read_metadata(job, "nnilite_resources")
    kept = {name: job.get(name) for name in ("submission_id", "entrypoint", "runtime_env", "metadata")}
    return {**kept, **wanted}


def find_nodes(job: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    """Return the number of nodes that a driver reserves, and the resources of each; (0, {}) for other jobs."""
    metadata = _read_metadata(job, "nnilite_nodes")
    number, bundle = metadata.get("nodes"), metadata.get("bundle")
    if not isinstance(number, int) or not isinstance(bundle, dict):
        return 0, {}
    return number, {str(name): float(amount) for name, amount in bundle.items() if isinstance(amount, (int, float))}


def _read_metadata(job: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object that the request has put into the metadata; {} if there is none."""
    try:
        content = json.loads(_read_object(job, "metadata").get(name) or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _read_object(job: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = job.get(name)
    return value if isinstance(value, Mapping) else {}


def find_package(body: Mapping[str, Any]) -> str:
    """Return the name of the package of a request, "" if it has none."""
    uri = str(_read_object(body, "runtime_env").get("working_dir") or "")
    return uri.removeprefix("gcs://")


def ender(job: str) -> dict[str, Json]:
    """Return the request for a job that ends another, waiting one.

    Ray's `stop` does not reach jobs that have not begun.
    """
    return {
        "submission_id": name_ender(job),
        "entrypoint": f'exec python -c "{_ENDING}" {job}',
        "metadata": {"job_name": f"ends {job}, which was canceled while it waited"},
    }


def name_ender(job: str) -> str:
    return f"{job}-end"


def _make_metadata(job: Job) -> dict[str, Json]:
    return {"job_name": job.name, "nnilite_experiment": job.experiment, "nnilite_trial": job.trial}


# ------------------------------------------------------------ from answers


def parse_version(text: str) -> tuple[int, int] | None:
    """Return Ray's version, such as (2, 10); None for a non-release such as "3.0.0.dev0", which is newer than all."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def page_url(address: str, name: str) -> str:
    """Return the job's own page on Ray's dashboard."""
    return f"{address.rstrip('/')}/#/jobs/{name}"


def find_host(job: Mapping[str, Any]) -> str:
    """Return the node on which a job runs."""
    try:
        return urlsplit(str(job.get("driver_agent_http_address") or "")).hostname or ""
    except ValueError:
        return ""


def seconds(value: object) -> float | None:
    """Return seconds: Ray's times are in milliseconds."""
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**16
    return value / 1000 if fits and isinstance(value, int) else None


def has_timed_out(job: Mapping[str, Any]) -> bool:
    """Return whether Ray gave up a job that it could not start within 15 minutes, or what its head node allows."""
    return job.get("status") == FAILED and job.get("error_type") == _TIMEOUT


def was_lost(job: Mapping[str, Any]) -> bool:
    """Return whether Ray itself reports that a job has not come to its own end: its log may be gone."""
    return str(job.get("error_type") or "").startswith("JOB_SUPERVISOR")


@dataclass(frozen=True)
class LoggedEnd:
    """What the log of an ended job says."""

    exited: Exited | None = None
    """The last report of the keeper, which prints one at every end that it survives."""
    started: float | None = None
    complete: bool = True
    """Whether the log could be read."""


def end_of(job: Mapping[str, Any], word: LoggedEnd, asked: bool) -> JobStatus:
    """Return how a job has ended. `asked`: whether nnilite has asked for the end."""
    exited, started = word.exited, word.started
    host, ended = find_host(job), seconds(job.get("end_time"))
    if exited is not None:
        ending = {"code": exited.code, "message": exited.message, "cause": exited.cause.value, "time": exited.time}
        # A SIGTERM that neither we nor Ray has sent comes from a node that goes down.
        if exited.cause is EndCause.INTERRUPTED and not asked and job.get("status") != STOPPED:
            return JobStatus(JobState.LOST, "the job's node ended it", host=host, started=started, ended=ended)
        status = end_status(ending, host, started)
        # Ray sends SIGTERM to the trial, too, which may die of it before its keeper has got its own.
        stopped = job.get("status") == STOPPED and status.state is JobState.FAILED
        return replace(status, state=JobState.CANCELED) if stopped else status
    state, reason, code = _outcome(job, asked, word.complete)
    return JobStatus(state, reason, code, host, started=started, ended=ended)


def _outcome(job: Mapping[str, Any], asked: bool, log_is_known: bool) -> tuple[JobState, str, int | None]:
    """Return state, reason and exit code from Ray, where the keeper has reported none."""
    status, code = job.get("status"), job.get("driver_exit_code")
    if status == SUCCEEDED:
        return JobState.SUCCEEDED, "", 0
    if status == STOPPED or asked:
        return JobState.CANCELED, "canceled" if asked else "the job was stopped on Ray", None
    message = sentence(str(job.get("message") or ""))
    kind = job.get("error_type")
    if kind == _COMMAND and isinstance(code, int) and not isinstance(code, bool):
        if log_is_known:
            return JobState.LOST, f"the trial's keeper was killed on the node (exit code {code})", None
        return JobState.FAILED, "", code
    if kind == _ENVIRONMENT:
        mine = find_package(job) and find_package(job) in str(job.get("message"))
        state = JobState.LOST if mine else JobState.FAILED
        return state, f"Ray could not set up the runtime environment: {message}", None
    if kind == _START_FAILURE and "Failed to start supervisor actor" in str(job.get("message")):
        return JobState.FAILED, f"Ray refuses the job: {message}", None
    return JobState.LOST, f"Ray lost the job: {message or kind or 'no reason given'}", None


def sentence(message: str) -> str:
    """Return the useful part of Ray's message, which may have names of classes, identifiers and tracebacks."""
    lines = [line.strip() for line in message.splitlines()]
    for line in reversed(lines):
        if any(word in line for word in _TELLING):
            return line[:_REASON_CHARS]
    errors = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception): ", line)]
    found = errors[-1] if errors else next(iter(filter(None, lines)), "")
    found = re.split(r"\. Full traceback:|Full traceback:", found)[0]
    return found.strip()[:_REASON_CHARS]
