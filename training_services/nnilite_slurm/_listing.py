"""Parse the answers of squeue and sacct on jobs, as JSON or as text.

The JSON of Slurm changes with each version: a state is a text, or a list of a state and flags; a number is a number, or
{"set": ..., "number": ...}. Text is requested in a format of nnilite, with epochs for times (SLURM_TIME_FORMAT).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from nnilite.errors import ServiceError
from nnilite.records import Json
from nnilite.services.cluster.queued_job import QueuedJob, QueuePhase
from nnilite.services.keeper_folder import read_clock_time
from nnilite_slurm._reasons import explain_slurm_end, explain_slurm_wait

SQUEUE_FORMAT = "%i|%j|%T|%S|%B|%N|%r"
SACCT_FIELDS = "JobID,JobName,State,Start,NodeList,ExitCode"

_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_RUNNING = frozenset({"COMPLETING", "RESIZING", "RUNNING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"})
_PHASES = {
    **dict.fromkeys(_WAITING, QueuePhase.WAITING),
    **dict.fromkeys(_RUNNING, QueuePhase.RUNNING),
    "CONFIGURING": QueuePhase.PREPARING,
    "CANCELLED": QueuePhase.CANCELED,
    "COMPLETED": QueuePhase.COMPLETED,
    "FAILED": QueuePhase.FAILED,
    "DEADLINE": QueuePhase.TIMED_OUT,
    "TIMEOUT": QueuePhase.TIMED_OUT,
    "OUT_OF_MEMORY": QueuePhase.KILLED,
    "BOOT_FAIL": QueuePhase.LOST,
    "NODE_FAIL": QueuePhase.LOST,
    "PREEMPTED": QueuePhase.LOST,
    "REVOKED": QueuePhase.LOST,
}
NAMELESS = "allocation"
"""The name that the accounting gives to a job whose name it has not kept."""
_FLAGS = ("COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING", "RESIZING", "REQUEUED", "REQUEUE_HOLD")
_WHOLE = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_NODES = re.compile(r"([\w.-]+)(?:\[(\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)\])?(?:,|$)", re.ASCII)
_MOST_TASKS = 100_000


def make_slurm_job(
    number: str,
    name: str,
    state: str,
    reason: str = "",
    host: str = "",
    started: float | None = None,
    exit_code: int | None = None,
) -> QueuedJob:
    """One job, or one task of a job array, which has an id such as 12_3."""
    phase = _PHASES.get(state, QueuePhase.UNKNOWN)
    words = explain_slurm_end(state, reason) if phase.is_over else explain_slurm_wait(reason)
    return QueuedJob(number, name, phase, state, words, host, started, exit_code, reason)


def parse_squeue_text(text: str) -> list[QueuedJob]:
    """Parse the answer in `SQUEUE_FORMAT`, with `--array`. Raises: ServiceError."""
    return [_parse_fields(row) for row in _rows(text)]


def _rows(text: str) -> Iterator[str]:
    """Yield the line of each job. The name of a job may have a line break in it."""
    row = ""
    for line in text.splitlines():
        row = f"{row} {line}" if row else line.strip()
        if row.count("|") >= 6:
            yield row
            row = ""
    if row:
        yield row


def _parse_fields(line: str) -> QueuedJob:
    fields = line.split("|", 6)
    if len(fields) != 7:
        raise ServiceError(f"squeue answered with an unexpected line: {line[:200]!r}")
    number, name, state, started, host, nodes, reason = fields
    where = "" if host == "n/a" else host
    found = make_slurm_job(number, name, _state(state), reason, where, _epoch(started))
    return replace(found, nodes=list_nodes(nodes))


def parse_sacct_text(text: str) -> list[QueuedJob]:
    """Parse the answer of `sacct -P -n -X` with `SACCT_FIELDS`. Raises: ServiceError."""
    found = []
    for line in filter(None, text.splitlines()):
        fields = line.split("|")
        if len(fields) != 6:
            raise ServiceError(f"sacct answered with an unexpected line: {line[:200]!r}")
        number, name, state, started, nodes, code = fields
        status, _, killed_by = code.partition(":")
        found.append(
            make_slurm_job(
                number, name, _state(state), "", _find_first_node(nodes), _epoch(started), _code(status, killed_by)
            )
        )
    return found


def from_json(text: str | bytes, prefix: str = "", user: int | None = None) -> list[QueuedJob]:
    """Parse the jobs in the JSON of squeue or sacct whose names begin so; `user`: those of this user alone.

    Raises: ServiceError if it is not such JSON, or holds an error.

    While slurmctld is unavailable, squeue succeeds and returns an empty list of jobs together with an error. sacct
    reports errors that are harmless: that there are no such jobs, or that a job has not ended.
    """
    try:
        answer = json.loads(text)
        wanted = [job for job in answer["jobs"] if _is_wanted(job, prefix, user)]
        jobs = [one for job in wanted for one in _parse_object(job)]
        errors = [str(error.get("error") or error.get("description") or error) for error in answer.get("errors") or ()]
        if not answer["jobs"] and any("Nothing found" not in words for words in errors):
            raise ServiceError("; ".join(errors))
        return jobs
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise ServiceError(f"the JSON of Slurm cannot be read: {error!r}") from error


def _is_wanted(job: Mapping[str, Any], prefix: str, user: int | None) -> bool:
    """Return whether to parse a job. One of another user may have any name, and a hundred thousand tasks."""
    owner = _number(job.get("user_id"))
    return str(job.get("name") or "").startswith(prefix) and (user is None or owner is None or owner == user)


def _parse_object(job: Mapping[str, Any]) -> Iterator[QueuedJob]:
    state = job.get("job_state") or job["state"]["current"]
    reason = job.get("state_reason") or (job.get("state") or {}).get("reason") or ""
    times = job.get("time") or {}
    plain = make_slurm_job(
        number=str(job["job_id"]),
        name=str(job.get("name") or ""),
        state=_state(state),
        reason=str(reason),
        host=str(job.get("batch_host") or _find_first_node(job.get("nodes"))),
        started=_moment(job.get("start_time", times.get("start"))),
        exit_code=_exit_code(job.get("exit_code")),
    )
    plain = replace(plain, nodes=list_nodes(job.get("nodes")))
    array = job.get("array") or {}
    whole = _number(job.get("array_job_id", array.get("job_id")))
    task = _number(job.get("array_task_id", array.get("task_id")))
    waiting = job.get("array_task_string") or array.get("task") or ""
    if not whole:
        yield plain
    elif task is not None and not waiting:
        yield _make_task_of_array(plain, whole, task)
    else:
        for number in _tasks(str(waiting)):
            yield _make_task_of_array(plain, whole, number)


def _make_task_of_array(job: QueuedJob, whole: int, task: int) -> QueuedJob:
    return replace(job, id=f"{whole}_{task}")


def _tasks(text: str) -> Iterator[int]:
    """Parse the numbers in 0-3,7-9:2%4.

    >>> list(_tasks("0-1,6-9:2%4"))
    [0, 1, 6, 8]
    """
    for part in text.split("%")[0].strip("[]").split(","):
        found = _RANGE.fullmatch(part.strip())
        if found:
            first = int(found.group(1))
            last = int(found.group(2) or first)
            yield from range(first, min(last, first + _MOST_TASKS) + 1, int(found.group(3) or 1))


def _state(value: Json) -> str:
    """Return one state of a text ("CANCELLED by 0"), or of a state with its flags."""
    names = [str(name).upper() for name in value] if isinstance(value, list) else str(value).upper().split()
    known = [name.rstrip("+") for name in names if name.rstrip("+") in _PHASES]
    flag = next((name for name in _FLAGS if name in known), "")
    return flag or next(iter(known), " ".join(names))


def _number(value: Json) -> int | None:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _moment(value: Json) -> float | None:
    return read_clock_time(_number(value)) or None


def _epoch(text: str) -> float | None:
    return read_clock_time(_whole(text)) or None


def _whole(text: str) -> int | None:
    """Return the number in a text; None for anything else, such as an endless number."""
    return int(text) if _WHOLE.fullmatch(text) else None


def _exit_code(value: Json) -> int | None:
    if isinstance(value, dict) and "return_code" in value:
        killed_by = value.get("signal") or {}
        killed_by = killed_by.get("id", killed_by.get("signal_id")) if isinstance(killed_by, dict) else killed_by
        return _code(str(_number(value["return_code"]) or 0), str(_number(killed_by) or 0))
    status = _number(value)
    # The status as of wait(2).
    return None if status is None else _code(str(status >> 8), str(status & 0x7F))


def _code(status: str, killed_by: str) -> int | None:
    number = _whole(killed_by)
    return -number if number else _whole(status)


def read_time_limits(listed: str) -> dict[str, float]:
    """Return the time limits of partitions in seconds, as sinfo lists them, the default one also under the name "".

    >>> read_time_limits("debug*|infinite\\nshort|5:00\\nlong|2-12:00:00\\n")
    {'debug': inf, '': inf, 'short': 300.0, 'long': 216000.0}
    """
    found: dict[str, float] = {}
    for line in listed.splitlines():
        name, _, limit = line.strip().partition("|")
        seconds = _limit_s(limit)
        found[name.rstrip("*")] = seconds
        if name.endswith("*"):
            found[""] = seconds
    return found


def _limit_s(limit: str) -> float:
    days, dash, clock = limit.rpartition("-")
    parts = [number for part in clock.split(":") if (number := _whole(part)) is not None]
    whole_days = _whole(days) if dash else 0
    if len(parts) <= clock.count(":") or whole_days is None:
        # Such as infinite, or a word of a later version.
        return math.inf
    # Minutes and seconds; hours come before them, and after days all three are there.
    hours, minutes, seconds = ([0] * 3 + parts)[-3:]
    return float(86400 * whole_days + 3600 * hours + 60 * minutes + seconds)


def list_nodes(nodes: Json) -> tuple[str, ...]:
    """Return the nodes of a list as Slurm writes it; none where it is written otherwise.

    >>> list_nodes("n[1-2,08],login"), list_nodes("r[1-2]n[1-9]"), list_nodes("(null)")
    (('n1', 'n2', 'n08', 'login'), (), ())
    """
    text, at = str((nodes.get("list") if isinstance(nodes, dict) else nodes) or ""), 0
    found: list[str] = []
    while at < len(text):
        part = _NODES.match(text, at)
        if part is None or len(found) > _MOST_TASKS:
            return ()
        at = part.end()
        for one in (part.group(2) or "").split(","):
            first, _, last = one.partition("-")
            numbers = range(int(first), min(int(last or first), int(first) + _MOST_TASKS) + 1) if first else ()
            found += [f"{part.group(1)}{number:0{len(first)}}" for number in numbers]
            if not one:
                found.append(part.group(1))
    return tuple(found)


def _find_first_node(nodes: Json) -> str:
    """Return the first of a list of nodes such as h[1-3],i4; newer versions have an object there."""
    if isinstance(nodes, dict):
        nodes = nodes.get("list")
    text = str(nodes or "")
    if text in ("None assigned", "(null)"):
        return ""
    found = re.match(r"([^\[,]*)(?:\[(\d+))?", text)
    return "".join(part or "" for part in found.groups()) if found else ""
