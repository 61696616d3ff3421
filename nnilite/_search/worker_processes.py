"""Worker processes that call the user's function, one trial each at a time.

    with WorkerProcesses(objective, takes_report=True) as workers:
        workers.begin(trial.id, trial.parameters)
        for event in workers.wait():       # ObjectiveReport, to be answered, or End
            ...

Each worker is a new Python ("spawn"), since a copy of this process could hang in locks that its other threads hold. A
worker that dies takes its trial with it, and nothing else. All is called by one thread.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from types import TracebackType

from nnilite._keeper.exit_code import signal_name
from nnilite._search import worker
from nnilite._search.outcomes import ObjectiveFailed, TimeUp, TrialOutcome
from nnilite.errors import Conflict, NniliteError, TrialStopped
from nnilite.records import Json

_LOOK_S = 1.0  # a worker's own child processes may keep its end of the pipe open after its death
_END_S = 5.0
_MOST_FALSE_STARTS = 3
_CURE = (
    "Define it at the top level of a module that can be imported, not in a notebook, a function or by lambda, "
    "and give what it needs by functools.partial; or run it in threads, without processes=True."
)
_POOLED = (
    "a worker of multiprocessing.Pool or joblib may not start worker processes. "
    "Run the trials in threads, without processes=True, or use a concurrent.futures.ProcessPoolExecutor."
)
_GUARD = 'A script has to call run under `if __name__ == "__main__":`, since each worker process imports it.'


@dataclass(frozen=True)
class ObjectiveReport:
    """A trial has reported a value and waits for `answer(verdict, text)`: see `worker`."""

    trial: str
    value: Json
    answer: Callable[[str, str], None]


@dataclass(frozen=True)
class ObjectiveAttribute:
    """A trial sets an attribute and waits for `answer(verdict, text)`."""

    trial: str
    name: str
    value: Json
    answer: Callable[[str, str], None]


@dataclass(frozen=True)
class End:
    """A trial has ended."""

    trial: str
    outcome: TrialOutcome


@dataclass(eq=False)
class _WorkerProcess:
    process: SpawnProcess
    link: Connection
    is_ready: bool = False
    trial: str = ""  # "": it is free
    parameters: Json = None


class WorkerProcesses:
    """The worker processes of one run. They end with the `with` block, whatever they do then."""

    def __init__(self, objective: Callable[..., Json], takes_report: bool) -> None:
        """Set up the workers.

        Raises: Conflict if the function cannot be sent to other processes, or this process may not start any.
        """
        if _is_pooled():
            raise Conflict(_POOLED)
        self._objective = _pickle(objective)
        self._takes_report = takes_report
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_WorkerProcess] = []
        self._false_starts = 0
        self.broken = False  # each worker would fail, as this one has

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._workers:
            if one.trial or not one.is_ready:
                one.process.terminate()
            else:
                with contextlib.suppress(OSError):
                    one.link.send(None)
        for one in self._workers:
            one.process.join(_END_S)
            _end(one)
        self._workers.clear()

    @property
    def is_busy(self) -> bool:
        """Whether a worker has a trial."""
        return any(one.trial for one in self._workers)

    def begin(self, trial: str, parameters: Json) -> None:
        """Give a trial to a free worker, or to a new one. One that has died since its last trial is replaced."""
        for one in [one for one in self._workers if not one.trial and one.process.exitcode is not None]:
            _end(one)
            self._workers.remove(one)
        free = next((one for one in self._workers if not one.trial), None) or self._start()
        free.trial, free.parameters = trial, parameters
        # If it has just died, `wait` finds that out.
        _send(free.link, ("call", parameters))

    def wait(self) -> Iterator[ObjectiveReport | ObjectiveAttribute | End]:
        """Yield what workers report, one by one; nothing after a second of silence.

        Raises: NniliteError if workers cannot begin.
        """
        busy = [one for one in self._workers if one.trial]
        wait([one.link for one in busy], _LOOK_S)
        for one in busy:
            event = self._hear(one)
            if event is not None:
                yield event

    def _start(self) -> _WorkerProcess:
        try:
            started = self._start_process()
        # A RuntimeError says that this process is itself a worker that imports the script.
        except (OSError, RuntimeError) as error:
            raise NniliteError(f"a worker process cannot be started: {str(error).strip()}") from error
        self._workers.append(started)
        return started

    def _start_process(self) -> _WorkerProcess:
        here, there = self._context.Pipe()
        arguments = (there, self._objective, self._takes_report)
        process = self._context.Process(target=worker.work, args=arguments, name="nnilite-search")
        with there:
            try:
                process.start()
            except BaseException:
                here.close()
                raise
        return _WorkerProcess(process, here)

    def _hear(self, one: _WorkerProcess) -> ObjectiveReport | ObjectiveAttribute | End | None:
        ended = one.process.exitcode is not None  # asked first: what it has sent before is read
        try:
            if one.link.poll():
                return self._understand(one, *one.link.recv())
        except (OSError, EOFError):
            ended = True
        return self._remove_dead(one) if ended else None

    def _understand(
        self, one: _WorkerProcess, kind: str, *parts: str
    ) -> ObjectiveReport | ObjectiveAttribute | End | None:
        if kind == "ready":
            one.is_ready, self._false_starts = True, 0
            return None
        if kind == "unusable":
            self.broken = True
            raise Conflict(f"a worker process cannot load the objective ({parts[0]}). {_CURE}")
        if kind == "report":
            number, value = parts
            return ObjectiveReport(one.trial, value, _make_answer(one.link, number))
        if kind == "attribute":
            number, name, value = parts
            return ObjectiveAttribute(one.trial, name, value, _make_answer(one.link, number))
        trial, one.trial = one.trial, ""
        return End(trial, _outcome(kind, *parts))

    def _remove_dead(self, one: _WorkerProcess) -> End | None:
        one.process.join(_END_S)  # the end of a pipe may be seen before that of its process
        code = one.process.exitcode
        _end(one)
        self._workers.remove(one)
        if one.is_ready:
            return End(one.trial, TrialOutcome(error=ObjectiveFailed(f"its worker process {_describe_code(code)}")))
        self._false_starts += 1
        if (code is not None and code > 0) or self._false_starts >= _MOST_FALSE_STARTS:
            self.broken = True
            raise NniliteError(
                f"a worker process {_describe_code(code)} before it could start; see its output. {_GUARD}"
            )
        self.begin(one.trial, one.parameters)
        return None


def _is_pooled() -> bool:
    """Return whether this process may start no other, or only ones that fail."""
    if multiprocessing.current_process().daemon:
        return True
    # A new process sets the start method of this one, and joblib's is unknown there.
    method = multiprocessing.get_start_method(allow_none=True)
    return method is not None and method not in multiprocessing.get_all_start_methods()


def _end(one: _WorkerProcess) -> None:
    """End a worker at once, unless it has ended, and free what it has in this process."""
    if one.process.exitcode is None:
        one.process.kill()
        one.process.join()
    one.link.close()
    # Where the user's program ignores SIGCHLD, Python never learns that a process has ended.
    with contextlib.suppress(ValueError):
        one.process.close()


def _pickle(objective: Callable[..., Json]) -> bytes:
    main = sys.modules.get("__main__")
    in_main = getattr(objective, "__module__", "") == "__main__"
    if in_main and not hasattr(main, "__file__"):
        raise Conflict(f"the objective cannot be sent to other processes: it was typed in. {_CURE}")
    try:
        return bytes(ForkingPickler.dumps(objective))
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        raise Conflict(f"the objective cannot be sent to other processes: {error}. {_CURE}") from error


def _outcome(kind: str, *parts: str) -> TrialOutcome:
    if kind == "value":
        return TrialOutcome(parts[0])
    if kind == "stopped":
        return TrialOutcome(error=TimeUp(parts[1]) if parts[0] == worker.TIME_UP else TrialStopped(parts[1]))
    return TrialOutcome(error=ObjectiveFailed(parts[0], parts[1]))


def _make_answer(link: Connection, number: Json) -> Callable[[str, str], None]:
    return lambda verdict, text: _send(link, ("answer", number, verdict, text))


def _send(link: Connection, message: object) -> None:
    # If the worker has just died, `wait` finds that out.
    with contextlib.suppress(OSError):
        link.send(message)


def _describe_code(code: int | None) -> str:
    """Describe how a process ended."""
    if code is None:
        return "has closed its connection"
    if code >= 0:
        return f"ended with exit code {code}"
    memory = "; perhaps the machine ran out of memory" if code == -signal.SIGKILL else ""
    return f"was killed by {signal_name(-code)}{memory}"
