"""Runs the user's function, trial by trial: in the calling thread, in several threads, or in processes."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from nnilite._sdk import attribute_setting
from nnilite._search.function_arguments import takes_report
from nnilite._search.outcomes import (
    ObjectiveFailed,
    TimeUp,
    TrialOutcome,
    cure_of,
    describe_exception,
    is_never_a_result,
)
from nnilite.errors import Conflict, NniliteError, NoMoreTrialError, NotFound, StoreError, TrialStopped
from nnilite.records import Json, Trial, TrialState

if TYPE_CHECKING:
    from concurrent.futures import Future

    from nnilite._search.worker_processes import WorkerProcesses
    from nnilite.search import Search

log = logging.getLogger("nnilite.search")

SAME_FAULT_LIMIT = 5
"""The number of trials that must fail alike, and none succeed, before `run` gives up."""


Callback = Callable[["Search", Trial], object]


@dataclass(frozen=True)
class Bounds:
    """The end of a run: after this many more trials, this many in all, or at a moment of `time.monotonic`."""

    trials: int
    total: int | None
    deadline: float | None


class Loop:
    """One call of `Search.run`. `ended` is called with each trial that has ended."""

    def __init__(
        self, search: Search, objective: Callable[..., Json], bounds: Bounds, ended: Callable[[Trial], None]
    ) -> None:
        self._search = search
        self._objective = objective
        self._takes_report = takes_report(objective, search._plan.space)
        self._left = bounds.trials
        self._total = bounds.total
        self._exhausted = False
        self._deadline = bounds.deadline
        self._ended = ended
        self._begun: dict[str, Trial] = {}  # and not ended
        self._stopped = False
        self._same_fault: tuple[str, int] | None = ("", 0)  # None: a trial has succeeded, or failed otherwise

    def stop(self) -> None:
        """Begin no more trials."""
        self._left = 0

    def run(self, concurrency: int, processes: bool) -> None:
        """Run to the end: in this thread, in several threads, or in processes."""
        try:
            if processes:
                self.run_in_processes(concurrency)
            elif concurrency == 1:
                self.run_here()
            else:
                self.run_in_threads(concurrency)
        except BaseException as error:  # such as Ctrl-C, which may come at any place
            for trial in self._begun.values():
                self._cancel(trial, error)
            raise

    def run_here(self) -> None:
        while (trial := self._next()) is not None:
            self._learn(trial, self._attempt(trial))

    def run_in_threads(self, concurrency: int) -> None:
        from concurrent.futures import FIRST_COMPLETED, Future, wait

        from nnilite._search.trial_threads import TrialThreads

        running: dict[Future[TrialOutcome], Trial] = {}
        with TrialThreads(concurrency) as threads:
            try:
                while True:
                    while len(running) < concurrency and (trial := self._next()) is not None:
                        future: Future[TrialOutcome] = Future()
                        running[future] = trial
                        threads.submit(future, partial(self._attempt, trial))
                    if not running:
                        return
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        outcome = done.result()
                        self._learn(running.pop(done), outcome)
                        self._exhausted = False  # this result may let the tuner propose again
            except BaseException as error:
                self._stopped = True
                self._wait_for_threads(running, error)
                raise

    def _wait_for_threads(self, running: dict[Future[TrialOutcome], Trial], error: BaseException) -> None:
        """Wait for what still runs, so that nothing of it is lost; but not after a second Ctrl-C."""
        interrupt = error if isinstance(error, KeyboardInterrupt) else None
        if interrupt:
            log.warning(
                "interrupted; waiting for %d trials that run in threads, which end at their next report or when the "
                "function returns. Another Ctrl-C leaves them",
                len(running),
            )
        for future, trial in running.items():
            # An exception is the error that ended the run, such as SystemExit of the function.
            ended_by = error if future.cancel() else future.exception()
            if ended_by is None and isinstance(future.result().error, TimeUp):
                ended_by = interrupt
            self._tell(trial, future.result()) if ended_by is None else self._cancel(trial, ended_by)

    def _cancel(self, trial: Trial, error: BaseException) -> None:
        reason = f"interrupted ({describe_exception(error)})"
        # Its end is known already, or its beginning is not, or the storage has failed, which may have ended the run.
        with contextlib.suppress(Conflict, NotFound, StoreError):
            self._search.tell(trial, state=TrialState.USER_CANCELED, reason=reason)

    def run_in_processes(self, concurrency: int) -> None:
        """Run trials in worker processes.

        Raises: Conflict if the function cannot be sent to processes, NniliteError if these cannot begin.
        """
        from nnilite._search.worker_processes import WorkerProcesses

        running: dict[str, Trial] = {}
        with WorkerProcesses(self._objective, self._takes_report) as workers:
            try:
                while True:
                    while len(running) < concurrency and (trial := self._next()) is not None:
                        running[trial.id] = trial
                        workers.begin(trial.id, trial.parameters)
                    if not running:
                        return
                    for ended, outcome in self._ends(workers, running):
                        self._learn(ended, outcome)
                        self._exhausted = False  # this result may let the tuner propose again
            except BaseException as error:
                self._stopped = True
                self._finish(workers, running, error)
                raise

    def _ends(self, workers: WorkerProcesses, running: dict[str, Trial]) -> Iterator[tuple[Trial, TrialOutcome]]:
        """Answer the reports that have come, and yield the ends, each once it no longer counts as running."""
        from nnilite._search.worker_processes import End, ObjectiveAttribute

        for event in workers.wait():
            if isinstance(event, End):
                yield running.pop(event.trial), event.outcome
            elif isinstance(event, ObjectiveAttribute):
                event.answer(*self._set_attribute(running[event.trial], event.name, event.value))
            else:
                event.answer(*self._verdict(running[event.trial], event.value))

    def _finish(self, workers: WorkerProcesses, running: dict[str, Trial], error: BaseException) -> None:
        """Wait for what still runs, so that nothing of it is lost; but not after a Ctrl-C, which kills it."""
        while workers.is_busy and isinstance(error, Exception) and not workers.broken:
            for trial, outcome in self._ends(workers, running):
                self._tell(trial, outcome)

    def _next(self) -> Trial | None:
        if self._left <= 0 or self._exhausted or self._late():
            return None
        try:
            trial = self._search._ask(self._total, self._begun)
        except NoMoreTrialError as error:
            log.info("the tuner has no more parameters: %s", error)
            trial = None
        if trial is None:
            self._exhausted = True
            return None
        self._left -= 1
        return trial

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _attempt(self, trial: Trial) -> TrialOutcome:
        try:
            report = partial(self._take_report, trial)
            # A function without `report` may call `nnilite.report_intermediate_result`, as on a training service.
            handed = None if self._takes_report else report
            with attribute_setting.hand_to(partial(self._search.set_attribute, trial), handed):
                if self._takes_report:
                    return TrialOutcome(self._objective(trial.parameters, report))
                return TrialOutcome(self._objective(trial.parameters))
        except Exception as error:  # noqa: BLE001  the user's own code: one bad trial must not end the search
            return TrialOutcome(error=error)

    def _take_report(self, trial: Trial, value: Json) -> None:
        if self._late() or self._stopped:
            raise TimeUp("the search ends" if self._stopped else "the time is up")
        if not self._search.report(trial, value):
            raise TrialStopped(self._search._stop_reasons.get(trial.id, "stopped by the assessor"))

    def _verdict(self, trial: Trial, value: Json) -> tuple[str, str]:
        """Return the answer to a report of a worker process: see `worker`."""
        from nnilite._search import worker

        try:
            self._take_report(trial, value)
        except TrialStopped as error:
            return worker.TIME_UP if isinstance(error, TimeUp) else worker.STOP, str(error)
        except Exception as error:  # noqa: BLE001  a user's assessor, or storage: in a thread this fails the trial, too
            return worker.REFUSED, describe_exception(error)
        return worker.GO_ON, ""

    def _set_attribute(self, trial: Trial, name: str, value: Json) -> tuple[str, str]:
        """Return the answer to an attribute of a worker process."""
        from nnilite._search import worker

        try:
            self._search.set_attribute(trial, name, value)
        except NniliteError as error:
            return worker.REFUSED, str(error)
        return worker.GO_ON, ""

    def _learn(self, trial: Trial, outcome: TrialOutcome) -> None:
        ended = self._tell(trial, outcome)
        self._ended(ended)
        if not isinstance(outcome.error, TrialStopped):
            self._check_usable(ended, outcome)
            self._count(ended, outcome)

    def _tell(self, trial: Trial, outcome: TrialOutcome) -> Trial:
        ended = self._tell_search(trial, outcome)
        self._begun.pop(trial.id, None)
        return ended

    def _tell_search(self, trial: Trial, outcome: TrialOutcome) -> Trial:
        error = outcome.error
        if error is None:
            return self._search.tell(trial, outcome.value)
        if isinstance(error, TrialStopped):
            state = TrialState.SYS_CANCELED if isinstance(error, TimeUp) else TrialState.EARLY_STOPPED
            return self._search.tell(trial, state=state, reason=str(error))
        trace = error.__cause__ if isinstance(error, ObjectiveFailed) else error
        log.warning("trial %s failed: %s", trial.id, describe_exception(error), exc_info=trace)
        return self._search.tell(trial, state=TrialState.FAILED, reason=describe_exception(error))

    def _check_usable(self, trial: Trial, outcome: TrialOutcome) -> None:
        """Raise NniliteError if the function returns what can never be a result, so that every trial would fail."""
        if self._same_fault is None or outcome.error is not None or trial.state is not TrialState.FAILED:
            return
        if not is_never_a_result(outcome.value, self._search.objectives):
            return
        self._left = 0
        raise NniliteError(
            f"trial {trial.id} failed, as all others would: {trial.reason}. "
            "Where parameters have no result, raise an exception"
        )

    def _count(self, trial: Trial, outcome: TrialOutcome) -> None:
        if self._same_fault is None:
            return
        before, times = self._same_fault
        kind = outcome.fault()
        if trial.state is not TrialState.FAILED or (times and kind != before):
            self._same_fault = None
            return
        self._same_fault = (kind, times + 1)
        if times + 1 >= SAME_FAULT_LIMIT or (self._left <= 0 and times + 1 == len(self._search.result().trials)):
            self._left = 0
            raise NniliteError(
                f"the first {times + 1} trials all failed with the same error: {trial.reason}{cure_of(trial.reason)}"
            ) from outcome.error
