"""What is known of a scheduler: how it is called, and how its answers are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class BatchCommands:
    """Templates of the shell commands that are run on the login host. What is not set is the preset's."""

    submit: Annotated[str | None, "submits the file `script` of the current folder, and prints the job's id"] = None
    options: Annotated[str | None, "the resources of a trial, for {options} of `submit` and `tryOut`"] = None
    status: Annotated[str | None, "prints the jobs {ids}, or all jobs of the user"] = None
    cancel: Annotated[str | None, "ends the job {id}, whether it waits or runs"] = None
    check: Annotated[str | None, "fails if the scheduler does not answer; its first number is the version"] = None
    try_out: Annotated[str | None, "fails if the scheduler would never run the script on standard input"] = None
    find: Annotated[str | None, "prints the id of the job {name}; nothing if there is none"] = None
    reasons: Annotated[str | None, "prints why the jobs {ids} wait, if `status` does not"] = None
    history: Annotated[str | None, "prints what became of the jobs {ids} that `status` no longer lists"] = None


@dataclass(frozen=True)
class BatchPatterns:
    """Regular expressions of Python that read the answers, with (?m). What is not set is the preset's."""

    job_id: Annotated[str | None, "finds the id in what `submit` prints: its first group that matches"] = None
    job: Annotated[str | None, "finds each job in what `status` prints; its named groups are its facts"] = None
    id: Annotated[str | None, "finds a job's id in the text of a job, if `job` has no such group"] = None
    name: Annotated[str | None, "finds its name there"] = None
    state: Annotated[str | None, "finds its state there"] = None
    exit_code: Annotated[str | None, "finds its exit code there"] = None
    host: Annotated[str | None, "finds its first host there"] = None
    reason: Annotated[str | None, "finds why it waits there"] = None
    reasons: Annotated[str | None, "finds the groups id and reason in what `reasons` prints"] = None
    past_job: Annotated[str | None, "finds each job in what `history` prints, as `job` does; `job` if not set"] = None
    dead_node: Annotated[str | None, "finds hosts in what `status` prints that do not answer"] = None
    join: Annotated[str | None, "finds line breaks within a value, which are removed first"] = None
    missing: Annotated[str | None, "matches the error for a job that the scheduler does not know (any more)"] = None
    full: Annotated[str | None, "matches the error of `submit` when the scheduler takes no more jobs for now"] = None
    refused: Annotated[str | None, "matches the error of `submit` when the scheduler will never take the job"] = None


@dataclass(frozen=True)
class Scheduler:
    """A scheduler, as a preset or a config describes it."""

    title: str
    commands: BatchCommands
    patterns: BatchPatterns
    states: Mapping[str, str]  # from `waiting`, ... to a pattern that matches its words for it; the first one counts
    values: Mapping[str, str] = field(default_factory=dict)  # values of further fields in templates
    job_variable: str = ""  # the variable with the job's id, within a job
    numbers: Mapping[str, str] = field(default_factory=dict)  # what its states are called, where it prints numbers


def overlaid(below: T, above: T | None) -> T:
    """Return a dataclass with those fields of another that are set."""
    given = {} if above is None else asdict(above)  # type: ignore[call-overload]
    return replace(below, **{name: value for name, value in given.items() if value is not None})  # type: ignore[type-var]
