"""Reads what agents say of their machines. All of it is checked here.

Anyone who controls a machine can answer as its agent, and no such answer may disturb the trials of other machines.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from nnilite.records import Json
from nnilite.service import JobState, JobStatus
from nnilite.services.gpu import Gpu
from nnilite.ssh.errors import MachineError, OutcomeUnknown

_TEXTS = ("root", "boot", "host", "python", "interpreter", "system")
_LISTS = ("cached", "launchers")
_USE = ("cpuPercent", "memoryUsed", "memoryTotal")
_MOST_CHARS = 4096
_MOST = 2**53


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Raise MachineError for what the reading of a wrong answer raises."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MachineError(f"gives no answer of use about {what}: {error!r:.100}") from error


def read_facts(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an agent says of its machine. Raises: MachineError."""
    with refusing("itself"):
        texts = {name: _read_text(answer[name]) for name in _TEXTS}
        return {**texts, **{name: [_read_text(one) for one in answer[name]] for name in _LISTS}}


def read_start(answer: Any) -> dict[str, Any]:
    """Return what an agent says of a start: the keeper, or what is missing, or whom the job waits for.

    Raises: OutcomeUnknown, since after any other answer it may have been started.
    """
    try:
        with refusing("a start"):
            for name in ("missing", "waits"):
                if name in answer:
                    return {name: _read_text(answer[name])}
            texts = {name: _read_text(answer[name]) for name in ("start", "boot")}
            return {"pid": _read_whole(answer["pid"]), **texts, "server": _read_text(answer.get("server") or "")}
    except MachineError as error:
        raise OutcomeUnknown(str(error)) from error


def read_status(answer: Any, host: str) -> JobStatus:
    """Return what an agent says of a job. Raises: MachineError."""
    with refusing("a job"):
        code, reason = answer.get("exit_code"), str(answer.get("reason") or "")
        if code is not None and (type(code) is not int or abs(code) > _MOST):
            raise ValueError(f"{code!r:.60} is not an exit code")
        started, ended = (_read_number(answer.get(name)) for name in ("started", "ended"))
        return JobStatus(JobState(answer["state"]), reason, code, host, started=started, ended=ended)


def read_trace(answer: Any) -> dict[str, Json]:
    """Return what an agent says of earlier attempts of a trial. Raises: MachineError."""
    with refusing("a trial"):
        numbers = {name: answer[name] for name in ("attempt", "checkpoint")}
        found = {name: None if value is None else _read_whole(value) for name, value in numbers.items()}
        return {**found, "lost": bool(answer["lost"]), "directory": _read_text(answer["directory"])}


def read_piece(answer: Any) -> bytes | None:
    """Return a piece of a file that an agent sends; None if there is no such file. Raises: MachineError."""
    with refusing("a file"):
        return None if answer["data"] is None else base64.b64decode(answer["data"])


def read_files(answer: Any) -> list[Any] | None:
    """Return the list of files that an agent sends; None without a folder. Raises: MachineError."""
    with refusing("a folder"):
        found: list[Any] | None = answer.get("files")
        return found


def read_use(answer: Any) -> dict[str, Json]:
    """Return how busy a machine is, as far as its agent says it in the usual form."""
    use = answer.get("use") if isinstance(answer, Mapping) else None
    found = use if isinstance(use, Mapping) else {}
    return {name: value for name in _USE if (value := _read_number(found.get(name))) is not None}


def read_gpus(answer: Any) -> tuple[list[Gpu], frozenset[int]]:
    """Return the GPUs of a machine, and the processes on them that are ours. Raises: MachineError."""
    with refusing("its GPUs"):
        gpus = [
            Gpu(
                _read_whole(one["index"]),
                _read_text(one.get("name", "")),
                _read_whole(one.get("memory_total_mb", 0)),
                _read_whole(one.get("memory_used_mb", 0)),
                None if (percent := one.get("utilization_percent")) is None else _read_whole(percent),
                tuple(map(_read_whole, one.get("processes", ()))),
                _read_text(one.get("fault", "")),
            )
            for one in answer
        ]
        return gpus, frozenset(_read_whole(pid) for one in answer for pid in one.get("own", ()))


def _read_text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MOST_CHARS:
        raise ValueError(f"{value!r:.60} is not a text")
    return value


def _read_whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(f"{value!r:.60} is not a number")
    return value


def _read_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) <= _MOST else None  # NaN fails the comparison
