"""Starts or resumes an experiment whose trials call a function, and follows it to its end."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from nnilite._experiments import registry
from nnilite._experiments.documents import write_json
from nnilite._experiments.registry import RegistryEntry
from nnilite._functions import call_program
from nnilite._functions.function_folder import CalledFunction, prepare_function
from nnilite._logging.terminal_text import escape_control
from nnilite._running import final_delivery, launch, managers, reading
from nnilite._running.launch import ManagerOptions
from nnilite._running.manager_client import Client
from nnilite._running.manager_connection import Unreachable
from nnilite._search.search_result import SearchResult
from nnilite.codedir import PackageLimits
from nnilite.config import CheckedConfig, ExperimentConfig, read_stored, stored
from nnilite.errors import Conflict, NniliteError, NotFound, ServiceError
from nnilite.records import ExperimentState, Json, Trial, TrialState, find_error_line
from nnilite.tuning.objectives import configured, front, signs
from nnilite.units.path_rules import expand_home

log = logging.getLogger("nnilite.search")

POLL_S = 0.1
_PAUSED_S = 1.0
_LISTEN_EVERY_S = 1.0
_LISTENED = 3
"""How many of the first trials are read for what their workers say of themselves."""

_NOTE_BYTES = 4096
_TRACE_BYTES = 32_768
_MOST_RESUMES = 3
_OVER = (ExperimentState.DONE.value, ExperimentState.STOPPED.value, ExperimentState.ERROR.value)
_PROBE = "python3 call.py"
_KNOWN = "known.json"

T = TypeVar("T")


@dataclass(frozen=True)
class FunctionExperiment:
    """An experiment whose trials call a function, before it has started. `directory` is its folder.

    `known`: results from elsewhere, `{"parameter": ..., "value": ...}` each. Its tuner learns them first.
    """

    id: str
    directory: Path
    config: CheckedConfig
    function: CalledFunction
    known: Sequence[Mapping[str, Json]] = ()

    def begin(self, options: ManagerOptions, *, detach: bool = False) -> RegistryEntry:
        """Start the experiment, or resume the one with this id: its finished trials do not run again.

        Raises: Conflict if it runs, or searches another space; NniliteError if it cannot start.
        """
        try:
            entry = registry.find(self.id)
        except NotFound:
            return launch.create(self.config, options=options, detach=detach, experiment=self.id, fill=self._write)
        if entry.alive:
            raise Conflict(f"Experiment {self.id} is running already; stop it, or give another id.")
        self._adopt(entry)
        return launch.resume(entry, options=options, detach=detach)

    def _write(self, directory: Path) -> None:
        limits = self.config.code_limits
        self.function.write(directory, PackageLimits(limits.max_files, limits.max_size))
        if self.known:
            write_json(directory / _KNOWN, list(self.known))

    def _adopt(self, entry: RegistryEntry) -> None:
        """Give an experiment that exists already the function as it is now. Raises: Conflict, NniliteError."""
        config = read_stored(entry.directory)
        for word, there, here in (
            ("search space", config.search_space, self.config.search_space),
            ("optimize or objectives", *(_goals(one) for one in (config, self.config))),
            ("list of result constraints", config.result_constraints, self.config.result_constraints),
        ):
            if there != here:
                raise Conflict(
                    f"Experiment {self.id} has another {word} ({there!r:.150}, not {here!r:.150}); give the same, or "
                    "another id."
                )
        if not (entry.directory / "function").is_dir():
            raise Conflict(f"The trials of experiment {self.id} run a command, and no function; give another id.")
        config.trial_command = self.function.command(entry.directory)
        config.trial_code_directory = self.function.code_directory(entry.directory)
        self._write(entry.directory)
        write_json(entry.directory / "config.json", stored(config.checked(paths=False)))


def prepare(
    config: ExperimentConfig,
    function: Callable[..., Any],
    *,
    experiment: str | None = None,
    python: str | None = None,
    code_directory: str | Path | None = None,
    known: Sequence[Mapping[str, Json]] = (),
) -> FunctionExperiment:
    """Prepare an experiment for a function. `python`: what starts Python on workers, as a shell would read it.

    `code_directory`: what is sent to workers; None: that of the config or, if it names none, the folder of the module.
    Raises: ConfigError, Conflict.
    """
    if config.trial_command:
        raise Conflict(
            "the config has a trialCommand, but the function is what trials run. Leave it out; python='...' names "
            "another Python for workers."
        )
    given = copy.copy(config)
    given.trial_command = _PROBE
    if code_directory is not None:
        given.trial_code_directory = expand_home(code_directory).absolute()
    has_root = given.trial_code_directory != Path()
    probe = given.checked()
    settings = {service.name: probe.settings(service.name) for service in probe.services}
    other = [name for name, one in settings.items() if one.trial_command != _PROBE]
    if other:
        raise Conflict(f"the section of {other[0]} has a trialCommand, but the function is what trials run.")
    # A platform whose config has this field runs trials in the user's folder itself, where it is false.
    sent = any(getattr(service.config, "isolate_code", True) for service in probe.services)
    goals = list(configured(probe.tuner.class_args)) or ["default"]
    root = probe.trial_code_directory if has_root else None
    searched = probe.search_space or ()
    trial_function = prepare_function(function, goals, root=root, sent=sent, python=python, searched=searched)
    name = experiment or launch.new_id()
    directory = Path(probe.experiment_working_directory) / name
    given.trial_command = trial_function.command(directory)
    given.trial_code_directory = trial_function.code_directory(directory)
    if known:
        given.search_from = [*given.search_from, str(directory / _KNOWN)]
    # The folder with the code is made at the start.
    return FunctionExperiment(name, directory, given.checked(paths=False), trial_function, known)


class FunctionRun:
    """An experiment that runs and calls a function, followed by this program.

    `ended` is called with each trial that has ended, in the order of the ends, but not with those
    that had ended before a resume, at `began` in seconds since the epoch.
    """

    def __init__(self, entry: RegistryEntry, client: Client, ended: Callable[[Trial], None], began: float) -> None:
        self.entry = entry
        self.client = client
        self._ended = ended
        # Trials that have ended since `began`, before this program came here, count as new.
        before = (one for one in client.trials() if TrialState(one["state"]).ended and (one["ended"] or 0) < began)
        self._known = {one["id"] for one in before}
        self._succeeded = False
        self._heard: dict[str, int] = {}  # how much was read of what the first trials say, by trial
        self._printed: set[str] = set()
        self._listen_at = 0.0
        self._resumes = 0

    def follow(self, deadline: float | None = None) -> Mapping[str, Any]:
        """Wait for the end of the experiment, and return its profile.

        `deadline`, of `time.monotonic`: then running trials are cancelled. A manager that has died is resumed.
        Raises: NniliteError if the function can run nowhere, or what `ended` raises.
        """
        while True:
            profile = self._ask(self._profile)
            if profile is None:
                return {"state": ExperimentState.STOPPED.value, "reason": "it was stopped", "counts": {}}
            self._ask(partial(self._look, profile))
            if profile["state"] in _OVER:
                return profile
            if deadline is not None and time.monotonic() >= deadline:
                deadline = None
                self._ask(self._cancel_all)
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Begin no more trials."""
        begun = int(self.client.profile()["nextSequence"])
        self.client.update(maxTrialNumber=max(1, begun))

    def result(self) -> SearchResult:
        """Return what is known so far."""
        return result_of(self.client)

    def _profile(self) -> dict[str, Any]:
        return self.client.profile()  # from the present manager

    def _cancel_all(self) -> None:
        self.stop()
        for one in list(self.client.trials(states=["WAITING", "RUNNING", "UNKNOWN"])):
            with suppress(Conflict, NotFound):  # it has just ended
                self.client.cancel(one["id"])

    def _ask(self, question: Callable[[], T]) -> T | None:
        """Return the manager's answer; None if the experiment was stopped. Waits for a manager that is paused."""
        while True:
            try:
                return question()
            except Unreachable as error:
                if registry.is_alive(self.entry.directory):
                    log.debug("the manager does not answer now: %s", error)
                    time.sleep(_PAUSED_S)
                elif managers.was_stopped(self.entry):
                    return None
                else:
                    self._resume(error)

    def _resume(self, error: Unreachable) -> None:
        self._resumes += 1
        if self._resumes > _MOST_RESUMES:
            raise NniliteError(
                f"The manager of experiment {self.entry.id} has ended {self._resumes} times by itself; "
                f"{self.entry.directory / 'log' / 'manager.log'} may show why. Run again with id={self.entry.id!r} to "
                "continue."
            ) from error
        log.warning("the manager of experiment %s has gone, and is resumed", self.entry.id)
        self.client.close()
        self.entry = launch.resume(registry.find(self.entry.id), detach=False)
        self.client = managers.connect(self.entry)

    def _look(self, profile: Mapping[str, Any]) -> None:
        """Tell the trials that have ended, and what workers say of themselves."""
        self._succeeded = self._succeeded or bool(profile["counts"].get("SUCCEEDED"))
        count = sum(int(number) for state, number in profile["counts"].items() if TrialState(state).ended)
        if time.monotonic() >= self._listen_at and len(self._printed) < _LISTENED:
            self._listen_at = time.monotonic() + _LISTEN_EVERY_S
            self._listen()
        if count <= len(self._known):
            return
        fresh: list[dict[str, Any]] = []
        for one in self.client.trials(states=_ENDED_STATES, sort="ended", descending=True):
            if one["id"] in self._known:
                if len(fresh) + len(self._known) >= count:
                    break
                continue
            fresh.append(one)
        for one in reversed(fresh):
            self._known.add(one["id"])
            trial = reading.trial_of(one)
            if trial.state is TrialState.FAILED:
                self._tell_failure(trial)
            self._ended(trial)

    def _tell_failure(self, trial: Trial) -> None:
        """Log the traceback of a trial. Raises: NniliteError if each trial would fail like it."""
        _, found, refusal = trial.reason.rpartition(call_program.REFUSED)
        if found and not self._succeeded:
            refusal = escape_control(refusal.strip())
            raise NniliteError(f"trial {trial.id} could not call the function: {refusal}.".replace("..", "."))
        text, _ = self._read_errors(trial.id, -_TRACE_BYTES)
        trace = text.decode("utf-8", "replace")
        # Of a chain of errors, all are shown.
        first = trace.find("Traceback (most recent call last):")
        shown = f"\n{trace[first:].rstrip()}" if first >= 0 else ""
        log.warning(
            "trial %s failed: %s", trial.id, escape_control((find_error_line(trial.reason) or "it failed") + shown)
        )

    def _read_errors(self, trial: str, offset: int, **limit: int) -> tuple[bytes, int]:
        """Return a piece of its standard error, and where it ends; nothing while its platform cannot give it."""
        try:
            return self.client.output(trial, "stderr", offset, **limit)
        # The platform is not open yet after a resume, or is closed; the file was removed.
        except (ServiceError, NotFound) as error:
            log.debug("trial %s: %s", trial, error)
            return b"", 0

    def _listen(self) -> None:
        for one in self.client.trials(limit=_LISTENED):
            if one["state"] == "WAITING" or self._heard.get(one["id"], 0) >= _NOTE_BYTES:
                continue
            text, end = self._read_errors(one["id"], 0, limit=_NOTE_BYTES)
            self._heard[one["id"]] = _NOTE_BYTES if TrialState(one["state"]).ended else end
            for line in text.decode("utf-8", "replace").splitlines():
                if line.startswith(call_program.NOTED) and line not in self._printed:
                    self._printed.add(line)
                    log.warning("trial %s: %s", one["id"], escape_control(line[len(call_program.NOTED) :]))


_ENDED_STATES = [state.value for state in TrialState if state.ended]


@contextmanager
def running(
    experiment: FunctionExperiment, ended: Callable[[Trial], None], tell: Callable[[str], None]
) -> Iterator[FunctionRun]:
    """Run an experiment within the block. At its end, whatever the reason, nothing is left running.

    `tell` is called with a sentence now and then.
    """
    began = time.time()
    with managers.starting(experiment.id):
        entry = experiment.begin(ManagerOptions(port=0))
    run = None
    try:
        tell(f"Experiment {entry.id} is at {managers.find_page_address(entry)}, kept in {entry.directory}")
        run = FunctionRun(entry, managers.connect(entry), ended, began)
        yield run
        with suppress(Unreachable):  # it was stopped meanwhile
            if final_delivery.may_owe(run.client.profile()):
                final_delivery.wait_until_sent(run.client, tell)
    finally:
        with launch.hold_interrupts():
            if run is not None:
                run.client.close()
            managers.stop(run.entry if run is not None else entry)


def change_limits(client: Client, experiment: FunctionExperiment) -> None:
    """Give a resumed experiment the limits of this call."""
    config = experiment.config
    wanted = {"trialConcurrency": config.trial_concurrency, "maxTrialNumber": config.max_trial_number}
    limits = client.profile()["limits"]
    changed = {name: value for name, value in wanted.items() if value is not None and limits.get(name) != value}
    if changed:
        client.update(**changed)


def result_of(client: Client) -> SearchResult:
    """Return the result of an experiment, of its manager or of its folder."""
    profile = client.profile()
    goals = dict(profile["objectives"])
    trials = tuple(reading.trial_of(one) for one in client.trials())
    attempts = {trial.id: trial.attempt for trial in trials}
    reported: dict[str, list[Any]] = {}
    for one in client.metrics(kind="PERIODICAL"):
        if attempts.get(one["trial"]) == one["attempt"]:
            reported.setdefault(one["trial"], []).append(one["value"])
    ended = ((one, one.value) for one in trials if one.state is TrialState.SUCCEEDED and not one.violates)
    best = tuple(front(ended, signs(goals)))
    values = {trial: tuple(those) for trial, those in reported.items()}
    return SearchResult(best[0] if best else None, trials, values, best, dict(profile["searchSpace"]), goals)


def duration_s(timeout_s: float | None) -> int | None:
    """Return a time limit in whole seconds, as a config has it."""
    return None if timeout_s is None else max(1, math.ceil(timeout_s))


def _goals(config: ExperimentConfig) -> Any:
    arguments = config.tuner.class_args
    return configured(arguments) or arguments.get("optimize_mode")
