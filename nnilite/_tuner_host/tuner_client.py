"""The client of the tuner host: a child process that holds tuner and assessor.

The client makes calls in their order. If the child dies, exceeds the time limit, raises or answers what cannot be an
answer, the client ends it, starts a new one, replays the recorded history to bring it to the same state, and makes the
call again. The third failure in a row on the same input is final and raises TunerError with the user's traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnilite._engine.messages import Ask, Assess, History, Tell, TunerCall
from nnilite._loop_waits import limited
from nnilite._plugins import lookup
from nnilite._tuner_host.answer_check import Failure, WrongAnswer, read_answer, read_words
from nnilite._tuner_host.tuner_process import TunerProcess
from nnilite.errors import ConfigError, Place, StoreError, TunerError, explain_missing_package
from nnilite.records import Json
from nnilite.tuner import Call, CallKind

log = logging.getLogger(__name__)

_TRIES = 3
_START_TIMEOUT_S = 120.0  # importing torch on a loaded machine is slow
_CLOSE_TIMEOUT_S = 5.0
_CHUNK = 1000
_START_AGAIN_S = 2.0
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What a machine in trouble says: no file descriptors, memory, processes or disk space now."""


@dataclass(frozen=True)
class TunerPlan:
    """The settings of the child. `tuner` and `assessor` are the config's algorithm objects as JSON."""

    tuner: Mapping[str, Json]
    assessor: Mapping[str, Json] | None
    space: Json
    directory: Path  # the experiment's folder
    timeout_s: float = 3600.0  # for one call
    constraints: Sequence[str] = ()  # on parameters, as expressions
    result_constraints: Sequence[str] = ()
    gpus: str = ""  # CUDA_VISIBLE_DEVICES


def _placed(group: str, algorithm: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return an algorithm with the place of its class, if it is an installed one."""
    name = algorithm.get("name")
    return {**algorithm, "place": lookup.place(group, str(name))} if name else algorithm


class _Broken(Exception):
    """The child failed; a new one may succeed."""


class _Refusal(TunerError):
    """The tuner or the assessor does not take a field of the configuration."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(f"{field}: {message}")
        self.message = message
        self.field = field


class TunerHost:
    """Owns the child process. The engine's tuner task is the only caller, so nothing comes in between its calls."""

    def __init__(
        self,
        plan: TunerPlan,
        calls: Callable[[int], Awaitable[list[Call]]],
        histories: Callable[[], Awaitable[list[History]]],
    ) -> None:
        self.choice = ""  # which algorithm the tuner uses, and why, as of its last proposal
        self.stop_reason = ""  # why the assessor would stop the trial that it has judged last
        self._plan = plan
        self._calls = calls
        self._histories = histories
        self._ahead: TunerProcess | None = None
        self._process: TunerProcess | None = None
        self._hears = False
        self._revived = False  # whether the process knows what it is to know
        self._sent = 0  # requests to the process
        self._answered = 0  # how many of them have their answers, or have no waiting caller any more

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def adopt(self, ahead: TunerProcess) -> None:
        """Take a process that was started ahead, for the first start."""
        self._ahead = ahead

    async def open(self, after: int) -> bool:
        """Start the child and replay the first `after` recorded calls.

        Return whether the tuner, an advisor, wants intermediate results. Raises: TunerError, or ConfigError if a field
        of the configuration, such as the search space, is not for this tuner.
        """
        try:
            await self._retry({"do": "nothing"}, after, None)
        except _Refusal as refusal:
            raise ConfigError(refusal.message, Place(field=refusal.field)) from refusal
        return self._hears

    async def call(self, action: TunerCall) -> Any:
        """Make one call. Raises: TunerError.

        An `Ask` returns parameters for each id, fewer if the tuner has no more. An `Assess` returns whether the trial
        may continue, by assessor and advisor.
        """
        async with aclosing(self.answers([action])) as answers:
            return await anext(answers)

    async def answers(self, actions: Sequence[TunerCall]) -> AsyncGenerator[Any, None]:
        """Make calls in their order, and yield the answer to each as it comes. Raises: TunerError.

        All are sent at once: to wait for each answer costs more than the answer where processes wait for a processor.
        If one fails, it and those after it are made one by one.
        """
        requests = [_request(action) for action in actions]
        sent = await self._send_all([request for request, _ in requests])
        for request, after in requests:
            failed = None
            if sent:
                try:
                    answer = await self._answer(request, self._plan.timeout_s)
                except _Broken as error:
                    sent, failed = False, error
            if not sent:
                answer = await self._retry(request, after, failed)
            yield answer

    async def _send_all(self, requests: list[dict[str, Any]]) -> bool:
        """Send all requests. Return False if there is no process that could take them."""
        if self._process is None:
            return False
        try:
            await limited(self._plan.timeout_s, self._send(*requests))
        except (OSError, asyncio.TimeoutError) as error:
            log.debug("the tuner's process accepts no calls: %r", error)
            await self._end()
            return False
        return True

    async def try_space(self, space: Json) -> None:
        """Check that a new tuner, in a process of its own, accepts this search space. Raises: TunerError."""
        other = TunerHost(replace(self._plan, space=space, assessor=None), self._calls, self._histories)
        try:
            await other._start(0)
        except (_Broken, OSError) as error:
            raise TunerError(f"the tuner does not accept this search space: {error}") from error
        finally:
            await other.close()

    async def close(self, *, committed: bool = True) -> None:
        """Let the tuner end in good order, in which it may save its state, then end the process.

        It must not save what a resume would not know: a tuner that knows of something that is not `committed`, or does
        not know the whole history yet, is ended at once.
        """
        if not (committed and self._revived):
            await self._end()
            return
        while self._answered < self._sent:  # skip answers to calls whose caller was cancelled
            with contextlib.suppress(_Broken, TunerError):
                await self._line("a call", _CLOSE_TIMEOUT_S)
        with contextlib.suppress(_Broken, TunerError):
            await self._exchange({"do": "close"}, _CLOSE_TIMEOUT_S)
        await self._end()

    # ------------------------------------------------------------ one call, made until it works

    async def _retry(self, request: dict[str, Any], after: int, failed: _Broken | None) -> Any:
        """Repeat a request until it succeeds. `failed`: how the first try has ended, if there was one."""
        broken = failed or _Broken("")
        for attempt in range(_TRIES):
            try:
                if attempt == 0 and failed is not None:
                    raise failed
                if self._process is None:
                    await self._start_patiently(after)
                if request["do"] == "nothing":
                    return None
                return await self._exchange(request, self._plan.timeout_s)
            except _Broken as error:
                broken = error
                await self._end()
                log.warning("%s failed (%d of %d): %s", self._name_who(request), attempt + 1, _TRIES, error)
        raise TunerError(f"{self._name_who(request)} failed {_TRIES} times in a row on {_named(request)}: {broken}")

    def _name_who(self, request: dict[str, Any]) -> str:
        """Return who the request goes to. An advisor, which runs as a tuner, gets the same requests."""
        if not self._plan.assessor:
            return "the tuner"
        if request["do"] in ("assess", "assess_end"):
            return "the tuner or the assessor" if self._hears else "the assessor"
        return "the tuner or the assessor" if request["do"] == "nothing" else "the tuner"

    async def _exchange(self, request: dict[str, Any], timeout_s: float) -> Any:
        try:
            await limited(timeout_s, self._send(request))
        except asyncio.TimeoutError:
            raise _Broken(f"{_named(request)} was not accepted for {timeout_s:.0f} s (tunerTimeout)") from None
        except OSError as error:
            raise await self._lost(error) from error
        return await self._answer(request, timeout_s)

    async def _answer(self, request: dict[str, Any], timeout_s: float) -> Any:
        """Return the answer to the earliest request that has none yet, which is this one."""
        line = await self._line(_named(request), timeout_s)
        try:
            answer = read_answer(line, self._answered, request)
        except WrongAnswer as error:
            raise _Broken(str(error)) from None
        if not isinstance(answer, Failure):
            if request["do"] == "generate":
                self.choice = read_words(line, "choice")
            elif request["do"] == "assess":
                self.stop_reason = read_words(line, "reason")
            return answer
        if answer.fatal and answer.field:
            raise _Refusal(answer.text, answer.field)
        if answer.fatal:
            raise TunerError(answer.text)
        raise _Broken(f"{answer.text}\n{answer.traceback}".rstrip())

    async def _line(self, what: str, timeout_s: float) -> bytes:
        self._answered += 1
        if self._process is None:
            raise _Broken("its process does not exist")
        try:
            line = await limited(timeout_s, self._process.line())
        except asyncio.TimeoutError:
            raise _Broken(f"{what} took longer than {timeout_s:.0f} s (tunerTimeout)") from None
        except (OSError, ValueError) as error:
            raise await self._lost(error) from error
        if not line.endswith(b"\n"):
            raise await self._lost(ConnectionResetError())
        return line

    async def _lost(self, error: Exception) -> _Broken:
        """Return why there is no process to talk to any more."""
        if self._process is None or not isinstance(error, ConnectionError):
            return _Broken(f"its process cannot be reached: {error}")
        # A process that ends before it has read all resets the connection, and one that has read all closes it.
        ended = f"its process ended{await self._process.exit_word()}; see log/tuner.log"
        words = self._process.last_words()
        cure = explain_missing_package(words)
        return _Broken(f"{ended}. Its last words: {words}{cure and '. ' + cure}" if words else ended)

    async def _send(self, *requests: dict[str, Any]) -> None:
        if self._process is None:
            raise _Broken("its process does not exist")
        first = self._sent + 1
        self._sent += len(requests)
        numbered = (dict(request, number=number) for number, request in enumerate(requests, first))
        await self._process.send([json.dumps(request).encode() for request in numbered])

    # ------------------------------------------------------------ the process

    async def _start_patiently(self, after: int) -> None:
        """Wait while this machine has problems: the tuner has not failed. Raises: TunerError if they do not end."""
        trouble = ""
        while True:
            try:
                await self._start(after)
            except (OSError, StoreError) as error:
                await self._end()
                passing = error.busy if isinstance(error, StoreError) else error.errno in _PASSING
                if not passing:
                    raise TunerError(f"the tuner's process cannot be started: {error}{_cure(error)}") from error
                if str(error) != trouble:
                    log.warning("the tuner's process cannot be started now, and it is tried again: %s", error)
                trouble = str(error)
                await asyncio.sleep(_START_AGAIN_S)
            else:
                return

    async def _start(self, after: int) -> None:
        ahead, self._ahead = self._ahead, None
        self._process = ahead or await TunerProcess.start(self._plan.directory)
        await self._revive(after)
        self._revived = True

    async def _revive(self, after: int) -> None:
        plan = self._plan
        limit_s = max(plan.timeout_s, _START_TIMEOUT_S)
        tuner = _placed(lookup.TUNERS, plan.tuner)
        assessor = plan.assessor and _placed(lookup.ASSESSORS, plan.assessor)
        opening = {"do": "open", "tuner": tuner, "assessor": assessor, "space": plan.space, "gpus": plan.gpus}
        opening["constraints"] = list(plan.constraints)
        opening["resultConstraints"] = list(plan.result_constraints)
        self._hears = bool(await self._exchange(opening, limit_s))
        histories = await self._histories() if after and (plan.assessor or self._hears) else []
        if self._hears:
            for trial, attempt, values, _, _ in histories:
                about = {"trial": trial, "attempt": attempt, "values": values}
                await self._exchange({"do": "remember", **about}, limit_s)
        calls = await self._calls(after) if after else []
        for start in range(0, len(calls), _CHUNK):
            chunk = [vars(call) for call in calls[start : start + _CHUNK]]
            await self._exchange({"do": "calls", "calls": chunk}, limit_s)
        if calls:
            await self._exchange({"do": "replay"}, limit_s)
        if plan.assessor:
            for trial, attempt, values, ended, success in histories:
                about = {"trial": trial, "attempt": attempt, "values": values}
                await self._exchange({"do": "history", **about, "ended": ended, "success": success}, limit_s)

    async def _end(self) -> None:
        process, self._process = self._process, None
        self._revived = False
        self._sent = self._answered = 0
        if process is not None:
            await process.end()


def _cure(error: Exception) -> str:
    """Return what helps if the Python of this process is gone."""
    if not (isinstance(error, FileNotFoundError) and error.filename == sys.executable):
        return ""
    return "; nnilite's environment was moved or removed: stop the experiment, then resume it from another one"


def _request(action: TunerCall) -> tuple[dict[str, Any], int]:
    """Return the request of the child, and the number of the recorded call before it."""
    if isinstance(action, Ask):
        return {"do": "generate", "ids": list(action.parameter_ids)}, action.after
    if isinstance(action, Tell):
        return {"do": "call", "call": vars(action.call)}, action.number - 1
    if isinstance(action, Assess):
        return {"do": "assess", **action._asdict()}, action.after
    return {"do": "assess_end", "trial": action.trial, "success": action.success}, action.after


_METHODS = {
    CallKind.GENERATE: "generate_parameters",
    CallKind.RESULT: "receive_trial_result",
    CallKind.END: "trial_end",
    CallKind.IMPORT: "import_data",
    CallKind.SPACE: "update_search_space",
}


def _named(request: dict[str, Any]) -> str:
    """Describe the call, with its input."""
    kind = request["do"]
    if kind == "generate":
        return f"generate_parameters for ids {request['ids']}"
    if kind == "call":
        call = {key: value for key, value in request["call"].items() if value is not None}
        return f"{_METHODS[CallKind(call.pop('kind'))]} with {json.dumps(call):.500}"
    if kind in ("assess", "assess_end"):
        return f"{kind} of trial {request['trial']}"
    return {"open": "its construction", "nothing": "its start"}.get(str(kind), str(kind))
