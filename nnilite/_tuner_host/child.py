"""The child's side of the tuner host: a process that holds the user's tuner and assessor and obeys line by line.

It runs as `python -m nnilite._tuner_host.child FD`, or in a copy of the manager's process. Requests and answers are
JSON lines on the socket FD, one answer to each request, in order and with its number. The output of the user's code
goes to the log. Its exceptions are answered as errors with the user's traceback, and the manager decides what to do.

Processes that the user's code forks or starts do not get the connection.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nnilite._logging.terminal_text import LogFormatter
from nnilite._plugins import lookup
from nnilite._sdk.safe_text import safe_repr
from nnilite._tuner_host import LONGEST_LINE, PROCESS_NAME
from nnilite._tuner_host.advisor_results import AdvisorResults
from nnilite._tuner_host.later_trials import LaterTrials, wants_callback
from nnilite._tuner_host.return_checks import check_proposals, check_verdict, describe_user_error
from nnilite.assessor import Assessor
from nnilite.errors import ConfigError, NoMoreTrialError, Place, PluginError, SpaceError
from nnilite.tuner import Call, CallKind, Tuner
from nnilite.tuning.class_args import construct
from nnilite.tuning.constrained_tuner import constrain

Message = dict[str, Any]

_PACKAGE = Path(__file__).parents[1]
_SHIM = _PACKAGE / "_nni_shim"  # the same as in `nnilite._keeper`, whose import costs more than a tuner needs


class Child:
    """Holds the tuner and the assessor."""

    def __init__(self) -> None:
        self._tuner: Tuner | None = None
        self._assessor: Assessor | None = None
        self._copies = True  # whether the assessor gets copies of its histories
        self._reason = ""  # why the assessor would stop the trial that it has judged last
        self._results: AdvisorResults | None = None
        self._space: Any = None
        self._calls: list[Call] = []
        self._histories: dict[str, tuple[int, list[Any]]] = {}
        self._does: dict[str, Callable[[Message], Any]] = {
            "open": self._open,
            "calls": self._add_calls,
            "remember": self._remember,
            "replay": self._replay,
            "history": self._history,
            "generate": self._generate,
            "call": self._call,
            "assess": self._assess,
            "assess_end": self._assess_end,
            "close": self._close,
        }

    def answer(self, request: Message) -> Message:
        try:
            answer = {"ok": self._does[request["do"]](request)}
            tell = {"generate": ("choice", self._choice), "assess": ("reason", lambda: self._reason)}.get(request["do"])
            return answer if tell is None else {**answer, tell[0]: tell[1]()}
        except (ConfigError, PluginError) as error:
            field = (error.place.field or "") if isinstance(error, ConfigError) else ""
            message = error.message if isinstance(error, ConfigError) and field else str(error)
            return {
                "error": f"{message}\n{_format_user_traceback(error.__cause__)}".rstrip(),
                "fatal": True,
                "field": field,
            }
        # The user's code may raise anything.
        except (Exception, SystemExit, GeneratorExit) as error:
            logging.getLogger("tuner").exception("%s failed", request["do"])
            return {"error": describe_user_error(error), "fatal": False, "traceback": _format_user_traceback(error)}

    # ------------------------------------------------------------ coming to life

    def _open(self, request: Message) -> bool:
        """Make the algorithms. Return whether the tuner, an advisor, wants intermediate results."""
        self._tuner = _make(request["tuner"], lookup.TUNERS, Tuner)
        if wants_callback(self._tuner):
            self._tuner = LaterTrials(self._tuner)
        both = (request.get("constraints") or (), request.get("resultConstraints") or ())
        self._tuner = constrain(self._tuner, *both)
        if request.get("assessor"):
            self._assessor = _make(request["assessor"], lookup.ASSESSORS, Assessor)
            self._copies = request["assessor"].get("className") is not None
        self._space = request["space"]
        try:
            self._use().update_search_space(self._space)
        except SpaceError as error:
            field = error.place.field or "searchSpace"
            raise SpaceError(error.message, Place(field=field)) from error.__cause__
        self._results = AdvisorResults(self._tuner)
        return self._results.hears

    def _add_calls(self, request: Message) -> None:
        self._calls.extend(Call(**call) for call in request["calls"])

    def _remember(self, request: Message) -> None:
        if self._results is not None:
            self._results.remember(request["trial"], request["attempt"], request["values"])

    def _replay(self, request: Message) -> None:
        calls, self._calls = self._calls, []
        # A new experiment may have imported results, but it has nothing to load.
        if any(call.kind != CallKind.IMPORT for call in calls):
            for one in (self._tuner, self._assessor):
                if one is not None:
                    one.load_checkpoint()
        if self._results is not None and self._results.hears:
            self._results.replay(calls)
        else:
            self._use().replay(calls)

    def _history(self, request: Message) -> None:
        """Show the assessor a trial from before the restart."""
        trial, values = request["trial"], request["values"]
        if self._assessor is None:
            return
        if values:
            # The answer is ignored: the trial has already gone on or ended.
            self._assessor.assess_trial(trial, list(values))
        if request["ended"]:
            self._assessor.trial_end(trial, request["success"])
        else:
            self._histories[trial] = (request["attempt"], list(values))

    # ------------------------------------------------------------ work

    def _generate(self, request: Message) -> list[Any]:
        ids = request["ids"]
        try:
            found = self._use().generate_multiple_parameters(ids)
        except NoMoreTrialError:
            return []
        return check_proposals(found, len(ids))

    def _choice(self) -> str:
        """Return what the tuner says of the algorithm that it uses; "" if it has no such method."""
        explain = getattr(self._tuner, "explain_choice", None)
        return str(explain()) if callable(explain) else ""

    def _call(self, request: Message) -> None:
        call = Call(**request["call"])
        if call.kind == "space":
            self._space = call.value
        if self._results is not None:
            self._results.before(call)
        self._use().apply(call)

    def _assess(self, request: Message) -> bool:
        """Return whether the trial may continue. The assessor and an advisor see every new value, as with NNI."""
        wanted = self._results is None or not self._results.hears or self._results.tell(request)
        self._reason = ""
        if self._assessor is None:
            return wanted
        trial, attempt = request["trial"], request["attempt"]
        known_attempt, history = self._histories.get(trial, (attempt, []))
        if known_attempt != attempt:
            history = []
        elif len(history) > request["before"]:
            history = history[: request["before"]]
        self._histories[trial] = (attempt, history)
        for value in request["values"]:
            history.append(value)
            # A user's assessor may change the list. A copy at each result makes many results slow.
            if not check_verdict(self._assessor.assess_trial(trial, list(history) if self._copies else history)):
                self._reason = str(self._assessor.explain_stop())
                return False
        return wanted

    def _assess_end(self, request: Message) -> None:
        self._histories.pop(request["trial"], None)
        if self._assessor is not None:
            self._assessor.trial_end(request["trial"], request["success"])

    def _close(self, request: Message) -> None:
        for one in (self._use(), self._assessor):
            if one is not None:
                one.save_checkpoint()
                one._on_exit()

    def _use(self) -> Tuner:
        if self._tuner is None:
            raise RuntimeError("the tuner is not open")
        return self._tuner


def _make(spec: Message, group: str, base: type) -> Any:
    """Make the algorithm that the config describes. Raises: PluginError, and whatever the user's code raises."""
    name, class_name = spec.get("name"), spec.get("className")
    arguments = spec.get("classArgs") or {}
    if class_name is None:
        return _construct(lookup.class_at(group, str(name), spec.get("place", "")), arguments, base)
    directory = spec.get("codeDirectory")
    if directory:
        sys.path.insert(0, str(Path(directory)))
    found = lookup.import_class(class_name)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(
            f"{class_name} is not a class derived from nnilite.{base.__name__}: write `class NAME({base.__name__}):`",
            Place(field=f"{base.__name__.lower()}.className"),
        )
    return _construct(found, arguments, base)


def _construct(cls: type, arguments: Message, base: type) -> Any:
    try:
        return construct(cls, arguments)
    except ConfigError as error:
        where = (base.__name__.lower(), error.place.field)
        raise ConfigError(error.message, Place(field=".".join(filter(None, where)))) from error.__cause__


def _format_user_traceback(error: BaseException | None) -> str:
    """Return the traceback without frames of the manager, the base classes and Python's import; "" if empty."""
    if error is None:
        return ""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    # A SyntaxError names the place of the fault itself, without frames.
    if not frames and not isinstance(error, SyntaxError):
        return ""
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    return "".join([*lines, *traceback.format_exception_only(type(error), error)])


def _is_users(file: str) -> bool:
    return not file.startswith("<") and not {_PACKAGE, Path(importlib.__file__).parent} & set(Path(file).parents)


def _plain(value: Any) -> Any:
    """Return the JSON of numpy scalars and arrays, which many tuners propose."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def _encode(answer: Message, number: int) -> bytes:
    try:
        line = json.dumps({"number": number, **answer}, default=_plain, allow_nan=False).encode() + b"\n"
        if len(line) <= LONGEST_LINE:
            return line
        text = f"the tuner proposed {len(line) >> 20} MB at once; at most {LONGEST_LINE >> 20} MB are accepted"
    except Exception as error:  # noqa: BLE001 - a user's class may raise anything when it is asked for its JSON
        shown = safe_repr(answer.get("ok"), 500)
        text = f"the tuner proposed something that is not plain JSON ({describe_user_error(error)}): {shown}"
    return json.dumps({"number": number, "error": text, "fatal": False, "traceback": ""}).encode() + b"\n"


def _keep_to_this_process(link: socket.socket) -> None:
    """Let no other process have the connection: the manager would read its output as the tuner's answers."""
    file = link.fileno()
    os.set_inheritable(file, False)

    def forked() -> None:
        # The descriptor stays open: if it were closed, another file could get its number, and be written to.
        try:
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nothing, file, inheritable=False)
            os.close(nothing)
        except OSError:
            os.close(file)

    os.register_at_fork(after_in_child=forked)


def main(arguments: list[str]) -> None:
    to_log = logging.StreamHandler()
    to_log.setFormatter(LogFormatter("[%(asctime)s] %(levelname)s (%(name)s) %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[to_log], force=True)  # a copy of a manager has its handlers
    with suppress(OSError):  # only Linux has it, for those who look at the list of processes
        Path("/proc/self/comm").write_text(PROCESS_NAME)
    # With this, `from nni.tuner import Tuner` works where no nni is installed.
    sys.path.append(str(_SHIM))
    child, own = Child(), os.getpid()
    with socket.socket(fileno=int(arguments[0])) as link, link.makefile("rwb") as lines:
        _keep_to_this_process(link)
        for line in lines:
            request = json.loads(line)
            if request["do"] == "open":  # before anything is imported that looks at it
                os.environ["CUDA_VISIBLE_DEVICES"] = request["gpus"]
            answer = _encode(child.answer(request), request["number"])
            if os.getpid() != own:  # a process that the user's code has forked comes back here instead of ending
                os._exit(0)
            # The manager has ended, and this process ends with it.
            with suppress(ConnectionError):
                lines.write(answer)
                lines.flush()
            if request["do"] == "close":
                return


if __name__ == "__main__":
    main(sys.argv[1:])
