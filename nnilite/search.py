"""A search inside your own program: no server, no files, no processes.

`Search` holds a tuner, perhaps an assessor, and the trials. `run` does all; `ask` and `tell` leave the loop to you.
Tuner and assessor are called under one lock, so objectives may run in as many threads as you like.
"""

from __future__ import annotations

import inspect
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nnilite import _plugins, _text
from nnilite.assessor import Assessor, AssessResult
from nnilite.errors import Conflict, NniliteError, NoMoreTrialError, NotFound, PluginError
from nnilite.records import Json, Trial, TrialState
from nnilite.tuner import Tuner
from nnilite.tuning.class_args import construct, one_of
from nnilite.tuning.objectives import front, gains, signs

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Search", "SearchResult", "TrialStopped"]

log = logging.getLogger(__name__)

SAME_FAULT_LIMIT = 5
"""So many trials must fail alike, and none succeed, before `run` gives up."""


class TrialStopped(NniliteError):
    """Raised by `report` in an objective that should end now: the assessor, or the time limit, stops its trial."""


class _TimeUp(TrialStopped):
    """The time limit of `Search.run` stops the trial."""


@dataclass(frozen=True)
class SearchResult:
    """What a search has found.

    best             the succeeded trial with the best value; None if there is none
    trials           all trials, in the order in which they started
    intermediate     trial id -> the values that it reported on its way
    front            the trials that no other one beats in every objective; of a search with one objective, the best
    """

    best: Trial | None
    trials: tuple[Trial, ...]
    intermediate: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    front: tuple[Trial, ...] = ()

    def __repr__(self) -> str:
        best = "" if self.best is None else f", best {self.best.value!r} (trial {self.best.id})"
        return f"<SearchResult: {len(self.trials)} trials{best}>"

    def _repr_html_(self) -> str:
        """What notebooks show."""
        from nnilite import _html

        return _html.result(self.trials, self.front)

    def to_dataframe(self) -> DataFrame:
        """One row a trial: sequence, state, value, duration_s, reason, and `parameters.<name>` columns.

        Raises: PluginError if pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise PluginError("to_dataframe needs pandas. Install it with: pip install 'nnilite[pandas]'") from error
        return pandas.DataFrame([_row(trial) for trial in self.trials])


def _row(trial: Trial) -> dict[str, Any]:
    duration = None if trial.ended is None or trial.started is None else trial.ended - trial.started
    row = {
        "sequence": trial.sequence,
        "state": trial.state.value,
        "value": trial.value,
        "duration_s": duration,
        "reason": trial.reason,
    }
    return row | dict(_leaves("parameters", trial.parameters))


def _leaves(name: str, value: Json) -> Iterator[tuple[str, Json]]:
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, inner in value.items():
        yield from _leaves(f"{name}.{key}", inner)


class Search:
    """Searches the best parameters of a Python function.

    Args:
        space: a search space, as in a search-space file.
        tuner: name of an installed tuner, or a tuner of your own.
        optimize: "maximize" or "minimize"; or `{"accuracy": "maximize", "size": "minimize"}` for a tuner with
            several objectives, whose results are dicts with these keys.
        seed: the same seed and the same results give the same search (with concurrency 1).
        assessor: name of an installed assessor, or one of your own; stops poor trials early.
        tuner_args: the tuner's `classArgs`.

    Raises: SpaceError, ConfigError, PluginError

        search = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, optimize="minimize")
        best = search.run(lambda parameters: (parameters["x"] - 0.3) ** 2, trials=50).best
    """

    def __init__(
        self,
        space: Mapping[str, Any],
        tuner: str | Tuner = "TPE",
        optimize: str | Mapping[str, str] = "maximize",
        seed: int | None = None,
        assessor: str | Assessor | None = None,
        **tuner_args: Any,
    ) -> None:
        if isinstance(optimize, str):
            one_of("optimize", optimize, ("maximize", "minimize"))
        self._objectives = signs({"default": optimize} if isinstance(optimize, str) else optimize, "optimize")
        self._tuner = _tuner(tuner, optimize, seed, tuner_args)
        self._assessor = _assessor(assessor, optimize)
        self._tuner.update_search_space(space)
        self._lock = threading.RLock()
        self._trials: dict[str, Trial] = {}
        self._reported: dict[str, list[Json]] = {}

    def __repr__(self) -> str:
        goals = ", ".join(f"{'maximize' if sign > 0 else 'minimize'} {name}" for name, sign in self._objectives.items())
        return f"<Search by {type(self._tuner).__name__}: {goals}, {len(self._trials)} trials>"

    def ask(self) -> Trial:
        """Begin a trial: a record with `id` and `parameters`. Raises: NoMoreTrialError if the space is exhausted."""
        with self._lock:
            sequence = len(self._trials)
            parameters = self._tuner.generate_parameters(sequence)
            now = time.time()
            trial = Trial(
                id=str(sequence),
                sequence=sequence,
                parameters=parameters,
                parameter_id=sequence,
                state=TrialState.RUNNING,
                created=now,
                started=now,
            )
            self._trials[trial.id] = trial
            return trial

    def report(self, trial: Trial | str, value: Json) -> bool:
        """Take an intermediate result. False: the assessor would stop this trial; `tell` it as EARLY_STOPPED.

        Raises: NotFound, Conflict if the trial has ended.
        """
        with self._lock:
            found = self._running(trial)
            history = self._reported.setdefault(found.id, [])
            history.append(_plain(value))
            if self._assessor is None:
                return True
            return self._assessor.assess_trial(found.id, list(history)) in (AssessResult.Good, True)

    def tell(
        self,
        trial: Trial | str,
        value: Json = None,
        state: TrialState = TrialState.SUCCEEDED,
        reason: str = "",
    ) -> Trial:
        """End a trial with its value, or as FAILED or EARLY_STOPPED. A success without a finite number is a failure.

        Raises: NotFound, Conflict if the trial has ended already.
        """
        with self._lock:
            found = self._running(trial)
            value = _plain(value)
            if state is TrialState.SUCCEEDED and not self._is_result(value):
                state, reason = TrialState.FAILED, f"the result {value!r} {self._wanted()}"
            ended = replace(found, value=value, state=state, reason=reason, ended=time.time())
            self._trials[found.id] = ended
            self._teach(ended)
            return ended

    def _teach(self, trial: Trial) -> None:
        success = trial.state is TrialState.SUCCEEDED
        reported = self._reported.get(trial.id)
        value = trial.value
        if value is None and trial.state is TrialState.EARLY_STOPPED and reported:
            value = reported[-1]  # what it had reached informs the tuner too
        if value is not None:
            self._tuner.receive_trial_result(
                trial.parameter_id, trial.parameters, value, customized=False, trial_job_id=trial.id
            )
        self._tuner.trial_end(trial.parameter_id, success, trial_job_id=trial.id)
        if self._assessor is not None and reported:
            self._assessor.trial_end(trial.id, success)

    def result(self) -> SearchResult:
        """What is known so far."""
        with self._lock:
            trials = tuple(self._trials.values())
            ended = ((trial, trial.value) for trial in trials if trial.state is TrialState.SUCCEEDED)
            best = tuple(front(ended, self._objectives))
            intermediate = {trial: tuple(values) for trial, values in self._reported.items()}
            return SearchResult(best[0] if best else None, trials, intermediate, best)

    def run(
        self,
        objective: Callable[..., Json],
        trials: int = 100,
        concurrency: int = 1,
        timeout_s: float | None = None,
    ) -> SearchResult:
        """Run the objective until there were `trials` more trials, the space is exhausted or the time is up.

        The objective gets the parameters and, if it takes a second argument, a function `report(value)` for
        intermediate results, which raises `TrialStopped` when the trial should end; let it pass. Any other
        exception makes a failed trial, and the search goes on. With `concurrency` 1 it runs in the calling thread,
        else in that many threads. When the time is up, nothing new is started, and running trials are stopped at
        their next report (a thread cannot be stopped otherwise).

        Raises: NniliteError if the first trials all fail with the same error, which is its cause.
        """
        if trials < 1 or concurrency < 1:
            raise Conflict(f"trials and concurrency must be at least 1, not {trials} and {concurrency}.")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        loop = _Loop(self, objective, trials, deadline)
        if concurrency == 1:
            loop.run_here()
        else:
            loop.run_in_threads(concurrency)
        return self.result()

    def _running(self, trial: Trial | str) -> Trial:
        trial_id = trial.id if isinstance(trial, Trial) else trial
        found = self._trials.get(trial_id)
        if found is None:
            raise NotFound(f"this search has no trial {trial_id!r}.")
        if found.state.ended:
            raise Conflict(f"trial {trial_id} has ended already ({found.state.value}).")
        return found

    def _is_result(self, value: Json) -> bool:
        return gains(value, self._objectives) is not None

    def _wanted(self) -> str:
        keys = list(self._objectives)
        if keys == ["default"]:
            return "is neither a finite number nor a dict with one under 'default'"
        return f"is not a dict with finite numbers under {', '.join(keys)}"


class _Loop:
    """One call of `Search.run`."""

    def __init__(self, search: Search, objective: Callable[..., Json], trials: int, deadline: float | None) -> None:
        self._search = search
        self._objective = objective
        self._takes_report = _positional(objective) >= 2
        self._left = trials
        self._exhausted = False
        self._deadline = deadline
        self._same_fault: tuple[str, int] | None = ("", 0)  # None: a trial has succeeded, or failed otherwise

    def run_here(self) -> None:
        while (trial := self._next()) is not None:
            self._learn(trial, self._attempt(trial))

    def run_in_threads(self, concurrency: int) -> None:
        running: dict[Future[_Outcome], Trial] = {}
        with ThreadPoolExecutor(concurrency, thread_name_prefix="nnilite-search") as pool:
            while True:
                while len(running) < concurrency and (trial := self._next()) is not None:
                    running[pool.submit(self._attempt, trial)] = trial
                if not running:
                    return
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    self._learn(running.pop(done), done.result())
                    self._exhausted = False  # what it learns may give the tuner new ideas

    def _next(self) -> Trial | None:
        if self._left <= 0 or self._exhausted or self._late():
            return None
        try:
            trial = self._search.ask()
        except NoMoreTrialError as error:
            log.info("the tuner has no more parameters: %s", error)
            self._exhausted = True
            return None
        self._left -= 1
        return trial

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _attempt(self, trial: Trial) -> _Outcome:
        try:
            if self._takes_report:
                return _Outcome(self._objective(trial.parameters, self._reporter(trial)))
            return _Outcome(self._objective(trial.parameters))
        except Exception as error:  # noqa: BLE001  the user's own code: one bad trial must not end the search
            return _Outcome(error=error)

    def _reporter(self, trial: Trial) -> Callable[[Json], None]:
        def report(value: Json) -> None:
            if self._late():
                raise _TimeUp("the time is up")
            if not self._search.report(trial, value):
                raise TrialStopped("stopped by the assessor")

        return report

    def _learn(self, trial: Trial, outcome: _Outcome) -> None:
        error = outcome.error
        if error is None:
            ended = self._search.tell(trial, outcome.value)
            self._count(ended, None)
        elif isinstance(error, TrialStopped):
            state = TrialState.SYS_CANCELED if isinstance(error, _TimeUp) else TrialState.EARLY_STOPPED
            self._search.tell(trial, state=state, reason=str(error))
        else:
            log.warning("trial %s failed: %s", trial.id, _told(error), exc_info=error)
            self._count(self._search.tell(trial, state=TrialState.FAILED, reason=_told(error)), error)

    def _count(self, trial: Trial, error: Exception | None) -> None:
        if self._same_fault is None:
            return
        before, times = self._same_fault
        if trial.state is not TrialState.FAILED or (times and trial.reason != before):
            self._same_fault = None
            return
        self._same_fault = (trial.reason, times + 1)
        if times + 1 >= SAME_FAULT_LIMIT or (self._left <= 0 and times + 1 == len(self._search.result().trials)):
            self._left = 0
            raise NniliteError(f"all of the first {times + 1} trials failed alike: {trial.reason}") from error


@dataclass(frozen=True)
class _Outcome:
    value: Json = None
    error: Exception | None = None


def _plain(value: Any) -> Json:
    """As an experiment would have it: numbers of numpy, torch and the like are numbers."""
    try:
        return json.loads(_text(value))
    except TypeError:  # the caller says what is wrong with it
        return value


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _positional(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some built-in functions have no signature
        return 1
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in named and (p.default is p.empty or p.name == "report") for p in parameters)


def _tuner(
    tuner: str | Tuner, optimize: str | Mapping[str, str], seed: int | None, tuner_args: Mapping[str, Any]
) -> Tuner:
    if isinstance(tuner, Tuner):
        if tuner_args or seed is not None:
            raise Conflict("seed and tuner arguments are for a tuner given by name; give them to your own tuner.")
        return tuner
    cls = _plugins.tuner_class(tuner)
    if not isinstance(optimize, str):
        return construct(cls, {"objectives": dict(optimize), **_known(cls, seed=seed), **tuner_args})
    return construct(cls, {**_known(cls, optimize_mode=optimize, seed=seed), **tuner_args})


def _known(cls: type, **arguments: Any) -> dict[str, Any]:
    """Those of the arguments that the constructor has."""
    parameters = inspect.signature(cls).parameters
    return {name: value for name, value in arguments.items() if name in parameters}


def _assessor(assessor: str | Assessor | None, optimize: str | Mapping[str, str]) -> Assessor | None:
    if assessor is None or isinstance(assessor, Assessor):
        return assessor
    cls = _plugins.assessor_class(assessor)
    return construct(cls, _known(cls, optimize_mode=optimize))
