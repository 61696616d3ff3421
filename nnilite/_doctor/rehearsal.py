"""A real experiment of one trial on each platform: the way there, the Python there, and the way back.

Nothing of it is made for the doctor: the manager, the training service, the keeper and the callback are those of any
experiment, so what they need is what is tried. Only the trial's command is another one. It looks for the program of the
user's own command and reports a result, in shell words alone, as the worker's Python is the keeper's affair. If asked,
the trial runs the user's own command instead, for some seconds.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnilite._doctor import one_trial, own_command
from nnilite._doctor.finding import PLATFORM_CURE, Finding, cure_disk, divided, fault, ok
from nnilite._running.launch import ManagerOptions
from nnilite.config import CheckedConfig, load
from nnilite.errors import NniliteError

MISSING = 127
"""The shell's exit code for a program that does not exist."""

_HOSTS_S = 15.0  # for hosts not reached when the trial ends
_COMMANDS = ("trialCommand", "trial_command", "command", "taskRoles", "task_roles", "roles")


def rehearse(
    path: Path, config: CheckedConfig, options: ManagerOptions, limit_s: float, run_s: float | None = None
) -> Iterator[Finding]:
    """Run one trial on each training service of the config, for up to `limit_s` seconds each.

    With `run_s` the trial runs the user's own command, for up to so many seconds once it has begun.
    """
    sections: Any = load(path).training_service
    sections = sections if isinstance(sections, list) else [sections]
    for (name, _, _), section in zip(config.services, sections, strict=True):
        check = f"platform {name}"
        if run_s is None and _has_own_command(section):
            what = f"the trials of {name} have commands of their own (roles), so no trial of the doctor was run"
            yield ok(check, what)
            continue
        try:
            command = config.settings(name).trial_command or config.trial_command
            single = _make_single(path, section, None if run_s is not None else probe(command))
            if run_s is None:
                yield from _try(check, single, options, limit_s)
            else:
                yield from own_command.run(check, single, options, limit_s, run_s)
        except NniliteError as error:
            yield divided(check, str(error), PLATFORM_CURE)
        except OSError as error:  # of this machine, which has the experiment's folder
            yield fault(check, f"{error.filename or path}: {error.strerror or error}", cure_disk(error))


def _has_own_command(section: Any) -> bool:
    given = section if isinstance(section, dict) else vars(section)
    return any(given.get(word) for word in _COMMANDS)


def _make_single(path: Path, section: Any, command: str | None) -> CheckedConfig:
    """Return the user's config with one platform, one trial, and another command if given. Raises: ConfigError."""
    config = load(path)
    config.training_service = section
    config.experiment_name = "nnictl doctor"
    if command is not None:
        config.trial_command = command
    config.trial_concurrency = config.max_trial_number = 1
    # One attempt shows what is wrong: retries would repeat it, and an assessor has nothing to judge.
    config.max_trial_retries = config.retry_failed = 0
    config.assessor = config.advisor = None
    return config.checked()


def probe(command: str) -> str:
    """Return a shell command that ends with 127 if the program of `command` is missing, and else reports a result.

    >>> probe("LR=0.1 python3 trial.py")
    'command -v python3 >&2 || { echo python3 is not installed >&2; exit 127; }; echo "final 1" >> "$NNILITE_METRICS"'
    """
    program = shlex.quote(find_program(command))
    look = f"command -v {program} >&2 || {{ echo {program} is not installed >&2; exit {MISSING}; }}"
    return f'{look}; echo "final 1" >> "$NNILITE_METRICS"'


def find_program(command: str) -> str:
    """Return the program that a shell command starts first, as far as it is clear from the words; `sh` if it is not."""
    with contextlib.suppress(ValueError):  # a quote without its end, which the shell will complain of
        for word in shlex.split(command):
            if "=" not in word.partition("/")[0]:
                return word if not set(word) & set("$`(){}<>|&;*?!") else "sh"
    return "sh"


def _try(check: str, config: CheckedConfig, options: ManagerOptions, limit_s: float) -> Iterator[Finding]:
    began = time.monotonic()
    with one_trial.started(config, options) as entry:
        trial = one_trial.wait_for_end(entry, limit_s)
        troubles = one_trial.find_troubles(entry, _HOSTS_S) if trial.get("ended") else []
    for trouble in troubles:
        yield divided(check, trouble, PLATFORM_CURE)
    yield _judge_end(check, trial, find_probe_program(config.trial_command), time.monotonic() - began, limit_s)


def find_probe_program(command: str) -> str:
    return shlex.split(command)[2]


def _judge_end(check: str, trial: dict[str, Any], program: str, took_s: float, limit_s: float) -> Finding:
    state, reason = trial["state"], " ".join(str(trial.get("reason") or "").split())
    if state == "SUCCEEDED" and trial.get("value") is not None:
        return ok(check, f"a trial ran there and reported its result after {took_s:.1f} s; {program} is there")
    if state == "SUCCEEDED":
        cure = "check whether the disk of its worker is full, or mounted read-only"
        return fault(check, "a trial ran there, but its result did not come back", cure)
    if f"{program} is not installed" in reason or f"exit code {MISSING}" in reason:
        cure = "install it there, name an image that has it, or give its path in trialCommand"
        return fault(check, f"the worker does not have {program}, which the trial command needs", cure)
    if state == "WAITING":
        cure = one_trial.cure_in(reason) or "give it more time with --timeout"
        return fault(
            check, f"a trial still waits after {limit_s:.0f} s: {reason or 'its platform does not say why'}", cure
        )
    if state == "RUNNING":
        cure = "let workers reach this machine (nniManagerIp, --host, firewall), or set `callback: log`"
        return fault(check, f"a trial was started there, but no result has come back in {limit_s:.0f} s", cure)
    return divided(check, f"a trial ended as {state}: {reason or 'without a reason'}", PLATFORM_CURE)
