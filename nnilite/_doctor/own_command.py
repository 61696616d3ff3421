"""Runs the user's own command as one real trial, and judges how it went."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nnilite._doctor import one_trial
from nnilite._doctor.finding import Finding, fault, ok, warning
from nnilite._doctor.script_imports import find_imports
from nnilite._running.launch import ManagerOptions
from nnilite._store.start_share import BEFORE
from nnilite.config import CheckedConfig

_REPORT = "call nnilite.report_final_result, or append `final VALUE` to the file $NNILITE_METRICS"


def run(check: str, config: CheckedConfig, options: ManagerOptions, limit_s: float, run_s: float) -> Iterator[Finding]:
    """Run the command for at most `run_s` seconds after its begin, for which `limit_s` seconds are waited."""
    began = time.monotonic()
    with one_trial.started(config, options) as entry:
        trial = one_trial.wait_for_end(entry, limit_s, run_s)
        notices = one_trial.read_notices(entry)
    yield judge(check, trial, time.monotonic() - began, limit_s)
    yield from judge_start(check, notices, config)


def judge_start(check: str, notices: Iterable[str], config: CheckedConfig) -> Iterator[Finding]:
    """Yield the advice to preload modules if the trial's manager has found that its start takes most of its time."""
    for sentence in notices:
        if BEFORE in sentence:
            modules = find_imports(config.trial_command, Path(config.trial_code_directory))
            named = f"preload: [{', '.join(modules)}]" if modules else "the modules that your program imports"
            what = sentence.partition(":")[0]
            yield warning(check, what, f"if these are imports, have them done once for all trials: {named}")


def judge(check: str, trial: dict[str, Any], took_s: float, limit_s: float) -> Finding:
    """Return what a trial that ran the user's command, and may still run, shows."""
    state, reason = trial["state"], str(trial.get("reason") or "").strip()
    match state:
        case "SUCCEEDED" if trial.get("value") is None:
            return fault(
                check, f"your command ended well, but without a result: {reason or 'it reported none'}", _REPORT
            )
        case "SUCCEEDED" if reason:
            return warning(check, f"your command reported a result, but {reason}", _REPORT)
        case "SUCCEEDED":
            return ok(check, f"your command ran there and reported {trial['value']} after {took_s:.1f} s")
        case "RUNNING" if trial.get("latest") is not None:
            return ok(check, f"your command runs there and has reported {trial['latest']}; it was stopped now")
        case "RUNNING":
            return ok(
                check, f"your command ran there for {took_s:.0f} s without an error, and was stopped before its result"
            )
        case "WAITING":
            cure = one_trial.cure_in(reason) or "give it more time with --timeout"
            return fault(check, f"a trial still waits after {limit_s:.0f} s: {reason or 'nothing says why'}", cure)
        case _:
            cure = one_trial.cure_in(reason.partition("\n")[0]) or "correct the program"
            return fault(check, f"your command ended as {state}: {reason or 'without a reason'}", cure)
