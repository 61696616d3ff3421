"""A search inside your own program: no server, no processes unless asked for and, without `storage`, no files.

`Search` holds a tuner, perhaps an assessor, and the trials. `run` does all; `ask` and `tell` leave the loop to you.
Tuner and assessor are called under one lock, so objectives may run in as many threads as you like.

Modules that only a started search needs are imported at its start: programs that import `Search` do not always search.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from nnilite._sdk.safe_text import safe_repr
from nnilite._search.forked_search import LostLock, watch_forks
from nnilite._search.outcomes import call_back, is_never_a_result
from nnilite._search.program_end import explain_program_end
from nnilite._search.result_values import (
    calls_of,
    is_json,
    judged,
    plain_value,
    read_metric,
    wanted,
    warn_of,
    warn_of_failure,
    warn_of_no_number,
)
from nnilite._search.search_arguments import check_run_arguments, check_search_arguments, check_space, read_state
from nnilite._search.search_result import SearchResult
from nnilite._states import CallKind, TrialState
from nnilite.assessor import Assessor, AssessResult
from nnilite.errors import Conflict, NoMoreTrialError, NotFound, TrialStopped, no_attribute
from nnilite.tuner import Call, Tuner
from nnilite.tuning.objectives import front, gains, signs

if TYPE_CHECKING:
    from pathlib import Path

    from optuna.study import Study

    from nnilite._functions.function_run import FunctionRun
    from nnilite._functions.run_targets import RunsOn
    from nnilite._functions.search_on_service import RunTarget
    from nnilite._search.journal import Journal
    from nnilite._search.loop import Callback, Loop
    from nnilite._store.shared import SharedChanges
    from nnilite.records import Json, Trial

__all__ = ["Search", "SearchResult", "TrialStopped"]

MOST_TAKEOVERS = 1
"""How often a trial whose process has gone is begun again: it may be the trial that ends its process."""

_GONE = "the processes that ran it have gone before it ended"


class Search:
    """Searches the best parameters of a Python function.

    Args:
        space: a search space, as in a search-space file.
        tuner: name of an installed tuner, or a tuner of your own. None: Auto, which chooses the algorithm itself.
        optimize: "maximize" or "minimize"; or `{"accuracy": "maximize", "size": "minimize"}` for a tuner with
            several objectives, whose results are dicts with these keys.
        seed: the same seed and the same results give the same search (with concurrency 1).
        assessor: name of an installed assessor, or one of your own; stops poor trials early.
        storage: a folder in which the search is kept. If it has this search already, that continues; several
            processes may work at it at once. The folder's name is that of the search.
        constraints: expressions over the parameters that each proposal satisfies, as `["batch * layers <= 512"]`.
        result_constraints: limits of numbers in the results, as `["latency <= 20"]`; what breaks one is never the best.
        tuner_args: the tuner's `classArgs`.

    Raises: SpaceError, ConfigError, PluginError; Conflict if the storage has another search, StoreError

        search = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, optimize="minimize")
        best = search.run(lambda parameters: (parameters["x"] - 0.3) ** 2, trials=50).best
    """

    def __init__(  # noqa: PLR0913  those after the first are words in a call
        self,
        space: Mapping[str, Any],
        tuner: str | Tuner | None = None,
        optimize: str | Mapping[str, str] = "maximize",
        seed: int | None = None,
        assessor: str | Assessor | None = None,
        storage: str | Path | None = None,
        constraints: Sequence[str] = (),
        result_constraints: Sequence[str] = (),
        **tuner_args: Any,
    ) -> None:
        from nnilite._search import argument_synonyms
        from nnilite._search.plan import Plan
        from nnilite.space.python_space import plain_space
        from nnilite.tuning.result_constraints import ResultConstraints

        argument_synonyms.refuse_in_search(tuner_args)
        check_space(space)
        space = plain_space(space)
        check_search_arguments(tuner, optimize, assessor, storage, constraints, result_constraints)
        self._objectives = signs({"default": optimize} if isinstance(optimize, str) else optimize, "optimize")
        self._limits = ResultConstraints.parse(result_constraints)
        self._numbers = {*self._objectives, *self._limits.names}  # numbers that count in results
        plan = self._asked = Plan(
            space,
            "" if tuner is None else tuner,
            optimize,
            seed,
            assessor,
            tuner_args,
            constraints=tuple(constraints),
            result_constraints=self._limits.texts,
        )
        self._lock: threading.RLock | LostLock = threading.RLock()
        watch_forks(self)
        self._trials: dict[str, Trial] = {}
        self._reported: dict[str, list[Json]] = {}
        self._calls: list[Call] = []
        self._stop_reasons: dict[str, str] = {}  # for running trials that the assessor would stop
        self._loops: list[Loop | FunctionRun] = []
        self._next_number = 0  # number of the next parameters
        self._first: list[Json] = []  # parameters to try before the tuner is asked
        self._journal: Journal | None = None
        if storage is not None:
            from nnilite._search.journal import Journal

            self._journal = Journal(storage, plan)
        self._plan = self._journal.plan if self._journal is not None else plan.choose_tuner()
        with explain_program_end():
            self._tuner = self._plan.make_tuner()
            self._assessor = self._plan.make_assessor()
            self._tuner.update_search_space(space)
        with self._turn():  # it learns what is there
            pass

    def __repr__(self) -> str:
        goals = ", ".join(f"{'maximize' if sign > 0 else 'minimize'} {name}" for name, sign in self._objectives.items())
        where = f" in {self._journal.folder}" if self._journal is not None else ""
        return f"<Search by {type(self._tuner).__name__}: {goals}, {len(self._trials)} trials{where}>"

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            """Say what is here for a name of another library. Raises: AttributeError."""
            from nnilite._search import argument_synonyms

            raise no_attribute("'Search' object", self, name, argument_synonyms.OF_SEARCHES)

    def __getstate__(self) -> dict[str, Any]:
        # An installed tuner or assessor is not pickled: it is recreated, and learns what it knew.
        made = {"_tuner": self._plan.tuner, "_assessor": self._plan.assessor}
        own = {"_lock", "_loops", "_stop_reasons"}
        left_out = own | {name for name, given in made.items() if isinstance(given, str)}
        with self._lock:
            state = {name: value for name, value in self.__dict__.items() if name not in left_out}
            # Copied, as other threads may change them once the lock is free, and they are written after that.
            state |= {name: copy(state[name]) for name in ("_trials", "_calls", "_first", "_journal")}
            state["_reported"] = {trial: list(values) for trial, values in self._reported.items()}
            return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock, self._loops, self._stop_reasons = threading.RLock(), [], {}
        watch_forks(self)
        if isinstance(self._plan.tuner, str):
            self._tuner = self._plan.make_tuner()
            self._tuner.update_search_space(self._plan.space)
            self._tuner.replay(self._calls)
        if isinstance(self._plan.assessor, str):
            self._assessor = self._plan.make_assessor()
            self._assess_again(self._trials.values())

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Keep other threads and, with a storage, other processes out, after learning what these have done."""
        with explain_program_end(), self._lock:
            if self._journal is None:
                yield
                return
            with self._journal.turn() as news:
                self._catch_up(news)
                yield

    def _catch_up(self, news: SharedChanges) -> None:
        if news.calls:
            self._tuner.replay(news.calls)
            self._calls += news.calls
        for trial in news.trials:
            known = self._trials.get(trial.id)
            if known is not None and known.attempt != trial.attempt:
                self._reported.pop(trial.id, None)
            self._trials[trial.id] = trial
        for metric in news.metrics:
            history = self._reported.setdefault(metric.trial, [])
            if metric.attempt == self._trials[metric.trial].attempt and metric.index >= len(history):
                history.append(metric.value)
        self._assess_again(news.trials)

    def _assess_again(self, trials: Iterable[Trial]) -> None:
        """Show the assessor trials that others ran, or another one saw."""
        for trial in trials:
            reported = self._reported.get(trial.id)
            if self._assessor is not None and trial.state.ended and reported:
                self._assessor.assess_trial(trial.id, list(reported))
                self._assessor.trial_end(trial.id, trial.state is TrialState.SUCCEEDED)

    def ask(self) -> Trial:
        """Begin a trial: a record with `id` and `parameters`. Raises: NoMoreTrialError if the space is exhausted.

        With a storage, abandoned trials come first: those whose process ended before they did.
        """
        trial = self._ask(None, {})
        if trial is None:
            raise NoMoreTrialError
        return trial

    def _ask(self, total: int | None, begun: dict[str, Trial]) -> Trial | None:
        """Begin a trial; None if there are `total` trials already. `begun` has it by its id, whatever happens then."""
        with self._turn():
            if self._journal is not None:
                while (left := self._journal.abandoned()) is not None:
                    if left.attempt < MOST_TAKEOVERS:
                        trial = self._journal.begin_again(left)
                        begun[trial.id] = trial
                        self._trials[trial.id] = trial
                        self._reported.pop(trial.id, None)
                        return trial
                    self._end(replace(left, state=TrialState.FAILED, reason=_GONE, ended=time.time()))
            if total is not None and len(self._trials) >= total:
                return None
            sequence, number = self._find_next_numbers()
            if self._first:
                trial = self._start(self._first[0], sequence, begun)
                del self._first[0]  # only now: if its start could not be stored, it stays in the list
                return trial
            parameters = plain_value(self._tuner.generate_parameters(number))
            self._next_number = number + 1
            trial = self._start(parameters, sequence, begun, number)
            self._calls.append(Call(CallKind.GENERATE, number, trial.id, parameters))
            return trial

    def enqueue(self, parameters: Json) -> None:
        """Have the next trial of this process get these parameters, in the place of the tuner's own.

        Several such points are tried in turn. The log says if they are not in the search space. With `on`, the
        experiment begins with them. Raises: Conflict if it is a list.
        """
        if isinstance(parameters, (list, tuple)):
            raise Conflict("enqueue takes one set of parameters, a dict: call it for each of them.")
        parameters = plain_value(parameters)
        warn_of(self._plan.space, parameters)
        with self._lock:
            self._first.append(parameters)

    def add_trial(self, parameters: Json, value: Json) -> Trial:
        """Add a trial that ran elsewhere, with its result. The tuner learns it, and it counts as one of the search.

        Raises: Conflict if the value is not a result.
        """
        value = read_metric(value, self._numbers)
        if gains(value, self._objectives) is None:
            raise Conflict(f"the result {safe_repr(value)} {wanted(self._objectives, value)}.")
        parameters = plain_value(parameters)
        warn_of(self._plan.space, parameters)
        with self._turn():
            trial = self._start(parameters, self._find_next_numbers()[0], {})
            ended = replace(trial, value=value, state=TrialState.SUCCEEDED, ended=trial.started)
            ended = judged(ended, self._limits)
            learned = [{"parameter": trial.parameters, "value": value}]
            known = Call(CallKind.IMPORT, trial_job_id=trial.id, value=learned)
            if self._journal is not None:
                self._journal.end(ended, 0, [known])
            self._trials[ended.id] = ended
            self._calls.append(known)
            self._tuner.apply(known)
            return ended

    def _find_next_numbers(self) -> tuple[int, int]:
        """Return the next trial's sequence and parameter id."""
        if self._journal is None:
            return len(self._trials), max(len(self._trials), self._next_number)
        sequence, number = self._journal.find_next_numbers()
        return sequence, max(number, self._next_number)

    def _start(self, parameters: Json, sequence: int, begun: dict[str, Trial], number: int | None = None) -> Trial:
        """Start a trial with the parameters that the tuner has proposed under this number, or with others (None)."""
        from nnilite.records import Trial

        source, now = "customized" if number is None else "algorithm", time.time()
        trial = Trial(str(sequence), sequence, parameters, number, source, TrialState.RUNNING, created=now, started=now)
        begun[trial.id] = trial
        if self._journal is not None:
            self._journal.begin(trial)
        self._trials[trial.id] = trial
        return trial

    def report(self, trial: Trial | str, value: Json) -> bool:
        """Take an intermediate result. False: the assessor would stop this trial; `tell` it as EARLY_STOPPED.

        Raises: NotFound, Conflict if the trial has ended, or another process has taken it over.
        """
        with self._turn():
            running = self._running(trial)
            history = self._reported.setdefault(running.id, [])
            value = read_metric(value, self._numbers)
            if self._journal is not None:
                if not is_json(value):
                    raise Conflict(f"an intermediate result must be JSON to be kept, not {value!r:.200}.")
                self._journal.report(running, len(history), value)
            history.append(value)
            if self._assessor is None:
                return True
            warn_of_no_number(value)
            good = self._assessor.assess_trial(running.id, list(history)) in (AssessResult.Good, True)
            if not good:
                why = str(self._assessor.explain_stop())
                self._stop_reasons[running.id] = "stopped by the assessor" + (f": {why}" if why else "")
            return good

    def set_attribute(self, trial: Trial | str, name: str, value: Json) -> None:
        """Set an attribute of a running trial, which is kept with its end. A function calls `nnilite.set_attribute`.

        Raises: NotFound, Conflict if the trial has ended, or the attribute is not kept.
        """
        from nnilite.records import set_within_limits

        with self._turn():
            found = self._running(trial)
            attributes, refused = set_within_limits(found.attributes, name, plain_value(value))
            if refused or not is_json(attributes):
                raise Conflict(f"attribute {name!r:.60} is not kept: {refused or 'it is not JSON'}.")
            self._trials[found.id] = replace(found, attributes=attributes)

    def tell(
        self,
        trial: Trial | str,
        value: Json = None,
        state: TrialState | str = TrialState.SUCCEEDED,
        reason: str = "",
    ) -> Trial:
        """End a trial with its value, or as FAILED or EARLY_STOPPED. A success without a finite number is a failure.

        With a storage, the result is on the disk when this returns.
        Raises: NotFound, Conflict if the trial has ended already, or another process has taken it over; ConfigError
        if the state is none in which trials end.
        """
        state = read_state(state)
        with self._turn():
            running = self._running(trial)
            value = read_metric(value, self._numbers)
            stop_reason = self._stop_reasons.pop(running.id, "")
            if state is TrialState.EARLY_STOPPED:
                reason = reason or stop_reason
            if state is TrialState.SUCCEEDED and gains(value, self._objectives) is None:
                if value is not None and is_never_a_result(value, self._objectives):
                    warn_of_failure(running.id, value, self._objectives)
                state, reason = TrialState.FAILED, f"the result {safe_repr(value)} {wanted(self._objectives, value)}"
            if self._journal is not None and not is_json(value):
                value = None
            ended = replace(running, value=value, state=state, reason=reason, ended=time.time())
            return self._end(judged(ended, self._limits) if state is TrialState.SUCCEEDED else ended)

    def _end(self, ended: Trial) -> Trial:
        reported = self._reported.get(ended.id, [])
        calls = calls_of(ended, reported)
        if self._journal is not None:
            self._journal.end(ended, len(reported), calls)
        self._trials[ended.id] = ended
        self._calls += calls
        for call in calls:
            self._tuner.apply(call)
        if self._assessor is not None and reported:
            self._assessor.trial_end(ended.id, ended.state is TrialState.SUCCEEDED)
        return ended

    def result(self) -> SearchResult:
        """Return what is known so far."""
        with self._turn():
            trials = tuple(self._trials.values())
            ended = ((one, one.value) for one in trials if one.state is TrialState.SUCCEEDED and not one.violates)
            best = tuple(front(ended, self._objectives))
            intermediate = {trial: tuple(values) for trial, values in self._reported.items()}
            goals = {name: "maximize" if sign > 0 else "minimize" for name, sign in self._objectives.items()}
            found = best[0] if best else None
            return SearchResult(found, trials, intermediate, best, dict(self._plan.space), goals)

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the numbers that are searched for: `("default",)` for a single one."""
        return tuple(self._objectives)

    def to_optuna(self) -> Study:
        """Return a study of optuna, as that of `result()`."""
        return self.result().to_optuna()

    def run(  # noqa: PLR0913  those after the first are words in a call
        self,
        objective: Callable[..., Any],
        trials: int | None = None,
        concurrency: int | None = None,
        timeout_s: float | None = None,
        *,
        total: int | None = None,
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
        processes: bool = False,
        on: RunsOn | None = None,
        id: str | None = None,
        python: str | None = None,
        code_directory: str | Path | None = None,
        **others: NoReturn,
    ) -> SearchResult:
        """Run the objective until there were `trials` more trials, the space is exhausted or the time is up.

        The objective gets the parameters and, if it takes a second argument, a function `report(value)` for
        intermediate results, which raises `TrialStopped` when the trial should end; let it pass. An objective may raise
        it itself. Any other exception makes a failed trial, and the search continues. With `concurrency` 1 it runs in
        the calling thread, else in that many threads. When the time is up, nothing new is started, and running trials
        are stopped at their next report (a thread cannot be stopped otherwise).

        With `processes` it runs in that many processes of their own, also if that is one: for functions that keep
        Python busy, or may end their process. A process that dies fails its trial, and another one takes its place.

        With `on` each call of the function is a trial on a training service, by a manager with its web page, which
        ends with this call. The function is sent with the code directory of its module or, from a notebook or by
        lambda, as compiled code; what it is bound to travels too, up to 16 MB. Such a trial is stopped by SIGTERM, as a
        command is. `id` names the experiment: a run with the id of an earlier one continues that.

        Args:
            trials: 100 if neither this nor a config file says it.
            concurrency: how many trials run at once; 1 by default.
            on: a config file such as `"slurm.yaml"`, a config, the name of a platform such as `"local"` or `"ray"`, or
                an address such as `"ssh://user@host"`. `"inline"`: in this thread, for debuggers.
            python: with `on`, what starts Python on workers, for example `"conda run -n torch python"`.
            code_directory: with `on`, the folder that is sent to workers, in place of that of the function's module.
            total: in place of `trials`: until the search has so many trials in all, whichever process ran them.
            callbacks: each is called as `callback(search, trial)` with each trial that has ended, in this thread.
            processes: call the objective in processes. It has to be a function at the top level of a module.
            progress: None shows progress in notebooks, True elsewhere as well (on standard error), False nowhere.

        Raises: NniliteError if the first trials all fail with the same error, which is its cause; if a callback
            raises; or if processes cannot begin. Conflict if the objective cannot be called, or sent to processes or
            workers; with `on`, ConfigError, too. What has ended by then is in `result()`.
        """
        from nnilite._search import argument_synonyms
        from nnilite._search.loop import Bounds, Loop
        from nnilite._search.progress import SearchProgress

        argument_synonyms.refuse_in_run(others)
        check_run_arguments({"trials": trials, "concurrency": concurrency, "total": total}, callbacks)
        if on is not None and on != "inline":
            if processes:
                raise Conflict("processes=True is for a search in this program; leave it out with `on`.")
            from nnilite._functions.search_on_service import RunTarget

            where = RunTarget(
                on,
                trials=total or trials,
                concurrency=concurrency,
                timeout_s=timeout_s,
                id=id,
                python=python,
                code_directory=code_directory,
                progress=progress,
                first=tuple(self._first),
            )
            return self._run_elsewhere(where, objective, callbacks)
        if id is not None or python is not None or code_directory is not None:
            raise Conflict("id, python and code_directory are for trials on a training service: give `on`, too.")
        trials, concurrency = trials or 100, 1 if on is not None else concurrency or 1
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        bounds = Bounds(trials if total is None else sys.maxsize, total, deadline)
        most = total if total is not None else len(self._trials) + trials
        shown = SearchProgress(self, most, progress)

        def ended(trial: Trial) -> None:
            shown.show_end(trial)
            call_back(callbacks, self, trial)

        loop = Loop(self, objective, bounds, ended)
        self._loops.append(loop)
        shown.begin()
        try:
            with explain_program_end(), self._journal.running() if self._journal is not None else nullcontext():
                loop.run(concurrency, processes)
        finally:
            self._loops.remove(loop)
            shown.over()
        return self.result()

    def _run_elsewhere(
        self, where: RunTarget, objective: Callable[..., Any], callbacks: Sequence[Callback]
    ) -> SearchResult:
        from nnilite._functions import search_on_service

        if self._journal is not None:
            raise Conflict("storage keeps a search of this program; with `on`, give `id`, which keeps the experiment.")
        runs: list[FunctionRun] = []

        def begun(run: FunctionRun) -> None:
            self._first.clear()
            runs.append(run)
            self._loops.append(run)

        known = [trial for trial in self._trials.values() if trial.state.ended]
        try:
            search_on_service.run(
                where,
                objective,
                self._asked,
                known,
                begun,
                lambda trial: call_back(callbacks, self, trial),
                self._learn,
            )
        finally:
            for run in runs:
                self._loops.remove(run)
        return self.result()

    def _learn(self, result: SearchResult) -> None:
        """Take the trials of an experiment over. Those that have not ended there are left to it."""
        calls: list[Call] = []
        with self._lock:
            for trial in result.trials:
                if not trial.state.ended or trial.id in self._trials:
                    continue
                _, number = self._find_next_numbers()
                self._next_number = number + 1
                own = replace(trial, parameter_id=number)
                reported = list(result.intermediate.get(trial.id, ()))
                self._trials[trial.id] = own
                self._reported[trial.id] = reported
                calls += [Call(CallKind.GENERATE, number, trial.id, trial.parameters), *calls_of(own, reported)]
            self._calls += calls
            self._tuner.replay(calls)

    def stop(self) -> None:
        """Let `run` begin no more trials; it returns once those that run have ended. For callbacks and threads."""
        for loop in list(self._loops):
            loop.stop()

    def _running(self, trial: Trial | str) -> Trial:
        trial_id = trial if isinstance(trial, str) else trial.id
        running = self._trials.get(trial_id)
        if running is None:
            raise NotFound(f"this search has no trial {trial_id!r}.")
        if not isinstance(trial, str) and trial.attempt != running.attempt:
            raise Conflict(
                f"trial {trial_id} was taken over by another process, because this one seemed to have ended."
            )
        if running.state.ended:
            raise Conflict(f"trial {trial_id} has ended already ({running.state.value}).")
        return running
