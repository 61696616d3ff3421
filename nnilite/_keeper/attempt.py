"""One attempt, from the specification to the last delivered event.

prepare the folder -> start the command -> watch it -> end its group -> write how it ended -> deliver the rest

What goes wrong before the start is told as an exit without a code, so that the trial fails with that sentence.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from typing import Any, Dict, Mapping, Optional

from . import process
from .courier import Courier
from .folder import Folder, is_gone
from .link import RestLink, link_of
from .outbox import Outbox
from .output import OutputFile
from .spec import Spec
from .wake import Wake

NOT_STARTED = 4
FENCED = 5
OTHER_KEEPER = 3
ABANDONED = 6
UNDELIVERED = 7

_POLL_S = (0.01, 0.2)  # how often the files are looked at: while they grow, and while nothing happens
_OUTPUT_EVERY_S = 0.5  # output alone is no reason for more requests than this
_MESSAGE_CHARS = 2000
_LAST_TRY_S = 10.0
_LOOK_EVERY_S = 2.0
_NOT_FOR_TRIALS = (
    "NNI_TRIAL_COMMAND_CHANNEL",  # would take NNI's own SDK away from the spool
    "REUSE_MODE",
    "MULTI_PHASE",
    "NNILITE_TOKEN",
    "NNILITE_SPEC",
)


class NotStarted(Exception):
    """The command was not started; the sentence that the user gets."""


def run(spec: Spec, wake: Wake) -> int:
    """Run the attempt; the keeper's exit code.

    An attempt is run once: where a keeper has been before, what it has left is delivered and nothing is started.
    """
    folder = Folder(spec.directory)
    attempt = Attempt(spec, folder, wake)
    try:
        folder.create()
        if not folder.lock():
            return OTHER_KEEPER
        first = folder.reserve()
    except OSError as error:
        return attempt.not_started("the trial's folder {} cannot be written: {}".format(spec.directory, error.strerror))
    return attempt.run() if first else attempt.go_on()


def deliver(spec: Spec, wake: Wake) -> int:
    """Deliver what a dead keeper has left; the keeper's exit code."""
    folder = Folder(spec.directory)
    if not os.path.isdir(folder.inner):
        return 0
    if not folder.lock():
        return OTHER_KEEPER
    return Attempt(spec, folder, wake).deliver()


class Attempt:
    """Owns the trial's process. The courier's thread owns what is delivered."""

    def __init__(self, spec: Spec, folder: Folder, wake: Wake) -> None:
        self._spec = spec
        self._folder = folder
        self._wake = wake
        self._outputs = {
            "stdout": OutputFile(folder.stdout, spec.max_output_bytes),
            "stderr": OutputFile(folder.stderr, spec.max_output_bytes),
        }
        self._spool = OutputFile(folder.metrics, 0)
        self._link = link_of(spec)
        self._outbox = Outbox(folder, self._outputs if spec.send_output else {})
        self._courier = Courier(spec, folder, self._outbox, self._link, wake.poke)
        self._courier_works = False
        self._why = ""  # the trial is being ended because of this
        self._kill_at: Optional[float] = None
        self._began = (time.time(), time.monotonic())
        self._output_waits = False
        self._next_output = 0.0
        self._next_look = time.monotonic() + _LOOK_EVERY_S

    def run(self) -> int:
        """Run the command to its end."""
        try:
            child = self._start()
        except NotStarted as error:
            return self.not_started(str(error))
        started = dict(process.identity(child.pid), time=self._began[0])
        self._folder.write("started", started)
        self._courier.notify(_started(started))
        self._start_courier()
        code = self._watch(child)
        self._end_rest(child.pid)
        self._look()
        self._tell_exit(code, self._message(code))
        if self._courier.fenced:
            return FENCED
        self._linger()
        return _status(code)

    def not_started(self, message: str) -> int:
        """Tell the manager why there is nothing to run."""
        self._folder.note(message)
        self._tell_exit(None, message)
        self._start_courier()
        self._linger()
        return NOT_STARTED

    def go_on(self) -> int:
        """Like `run`, where an earlier keeper has started the command."""
        self.deliver()
        exited = self._folder.read("exit")
        if exited is None:
            return ABANDONED
        code = exited.get("code")
        return _status(code) if isinstance(code, int) else NOT_STARTED

    def deliver(self) -> int:
        """Deliver what is undelivered of an attempt whose keeper died, after ending what is left of it.

        Only its keeper could have known how the trial ended, so where there is no exit file none is told.
        """
        started = self._folder.read("started")
        if started is not None and process.is_running(started):
            process.end_group(int(started["pid"]), self._spec.grace_s)
        for group in process.groups_of(self._spec.job, self._spec.directory):
            process.end_group(group, self._spec.grace_s)
        exited = self._folder.read("exit")
        if started is not None:
            self._courier.notify(_started(started))
        self._courier.close(_exited(exited) if exited else None)
        self._start_courier()
        self._linger()
        if self._courier.fenced:
            return FENCED
        return 0 if self._outbox.complete else UNDELIVERED

    def _start_courier(self) -> None:
        if not self._courier_works:
            self._courier_works = True
            self._courier.start()

    def _start(self) -> "subprocess.Popen[bytes]":
        """Raises: NotStarted."""
        if self._wake.terminations:
            raise NotStarted("canceled before its command was started")
        try:
            self._folder.write_parameters(self._spec.parameters)
            directory = self._code()
            env = self._environment(directory)
        except OSError as error:
            raise NotStarted("the trial's folder cannot be prepared: {}".format(error)) from error
        if self._wake.terminations or self._courier.cancel or self._courier.fenced:
            raise NotStarted("canceled before its command was started")
        try:
            self._began = (time.time(), time.monotonic())
            return process.start(self._spec.command, directory, env, self._folder.stdout, self._folder.stderr)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the command or the environment
            raise NotStarted("the trial command cannot be started in {}: {}".format(directory, error)) from error

    def _code(self) -> str:
        """The folder in which the command runs. Raises: NotStarted, OSError."""
        if not self._spec.code:
            return self._folder.path
        if "in_place" in self._spec.code:
            return self._spec.code["in_place"]
        from . import working_copy

        target = os.path.join(self._folder.path, "code")
        try:
            archive = self._spec.code.get("archive") or self._download()
            working_copy.unpack(archive, target)
        except working_copy.CodeError as error:
            raise NotStarted(str(error)) from error
        return target

    def _download(self) -> str:
        """Fetch the code package from the manager, with heartbeats meanwhile."""
        from . import working_copy

        self._start_courier()
        return working_copy.download(
            RestLink(self._spec),
            self._spec.code["download"],
            self._folder.inner,
            lambda: bool(self._wake.terminations) or self._courier.cancel or self._courier.fenced,
        )

    def _environment(self, directory: str) -> Dict[str, str]:
        """Raises: OSError."""
        from . import sdk_folder

        spec = self._spec
        env = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_TRIALS}
        own = {
            "NNI_PLATFORM": "local",  # by which NNI's own SDK writes to the spool
            "NNI_EXP_ID": spec.experiment,
            "NNI_TRIAL_JOB_ID": spec.trial,
            "NNI_TRIAL_SEQ_ID": str(spec.sequence),
            "NNI_SYS_DIR": self._folder.path,
            "NNI_OUTPUT_DIR": self._folder.path,
            "NNI_CODE_DIR": directory,
            "NNILITE_PLATFORM": spec.platform,
            "NNILITE_JOB": spec.job,
            "NNILITE_ATTEMPT": str(spec.attempt),
            "NNILITE_METRICS": self._folder.metrics,
            "NNILITE_CHECKPOINT_DIR": spec.checkpoint_dir,
        }
        for name, value in {**own, **spec.env}.items():
            env.pop(name, None)
            if value is not None:
                env[name] = str(value)
        paths = [sdk_folder.place(self._folder.inner), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        return env

    def _watch(self, child: "subprocess.Popen[bytes]") -> int:
        """Wait for the command's end, see to its files meanwhile, and end it if that is wanted; its exit code."""
        shortest, longest = _POLL_S
        pause = shortest
        while True:
            self._wake.wait(pause)
            code = _reap(child)
            if code is not None:
                return code
            self._end_if_wanted(child.pid)
            pause = shortest if self._look() else min(longest, pause * 1.5)
            if self._kill_at is not None:
                pause = min(pause, max(0.001, self._kill_at - time.monotonic()))

    def _look(self) -> bool:
        """See to the files; whether one of them should be looked at again soon."""
        reported = self._spool.grown()
        printed = [output for output in self._outputs.values() if output.grown()]
        self._output_waits = self._output_waits or (self._spec.send_output and bool(printed))
        if reported or (self._output_waits and time.monotonic() > self._next_output):
            self._output_waits = False
            self._next_output = time.monotonic() + _OUTPUT_EVERY_S
            self._courier.notify()
        for output in printed:
            try:
                output.cut()
            except OSError as error:
                self._folder.note("{} cannot be cut: {}".format(output.path, error))
        return reported or any(output.near_cap for output in printed)

    def _end_if_wanted(self, group: int) -> None:
        """SIGTERM first, SIGKILL after the grace. A fenced attempt must not write any more: no grace."""
        now = time.monotonic()
        if self._courier.fenced:
            self._why = "given up by the manager"
            process.signal_group(group, signal.SIGKILL)
        elif self._kill_at is None:
            self._why = self._reason(now)
            if self._why:
                self._kill_at = now + self._spec.grace_s
                process.signal_group(group, signal.SIGTERM)
        elif now >= self._kill_at:
            process.signal_group(group, signal.SIGKILL)
            self._kill_at = now + 1

    def _reason(self, now: float) -> str:
        if self._courier.cancel or self._wake.terminations:
            return "canceled"
        limit = self._spec.max_duration_s
        if limit and now - self._began[1] > limit:
            return "went over its time limit of {:g} s".format(limit)
        return self._orphaned(now)

    def _orphaned(self, now: float) -> str:
        """Why nobody wants the trial any more; "" if somebody may."""
        limit = self._spec.orphan_s
        if limit and now - self._courier.heard_s > limit:
            return "nothing was heard of its manager for {:g} s".format(limit)
        if now > self._next_look:
            self._next_look = now + _LOOK_EVERY_S
            if self._is_deleted():
                return "its experiment was deleted"
        return ""

    def _end_rest(self, group: int) -> None:
        """The command has ended; what it has left running ends too, in what remains of the grace.

        Of an attempt that was ended before its time, that is also what has left its group. To look for that costs too
        much after every trial.
        """
        if process.signal_group(group, 0):
            process.end_group(group, self._grace_s())
        if self._why:
            for other in process.groups_of(self._spec.job, self._spec.directory):
                process.end_group(other, self._grace_s())

    def _grace_s(self) -> float:
        """What remains of the grace."""
        if self._courier.fenced:
            return 0.0
        return self._spec.grace_s if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())

    def _message(self, code: int) -> str:
        """One sentence on the end, and for a failure the end of what the trial wrote to standard error."""
        parts = [self._why or _sentence(code)] if code or self._why else []
        if code and self._folder.disk_is_full():
            parts.append("the disk of the trial's folder {} is full".format(self._folder.path))
        if code and not self._why:
            parts.append(self._outputs["stderr"].last(_MESSAGE_CHARS))
        return "\n".join(part for part in parts if part)

    def _tell_exit(self, code: Optional[int], message: str) -> None:
        wall, monotonic = self._began
        when = wall + time.monotonic() - monotonic  # the clock may have been set meanwhile
        exited = {"time": when, "code": code, "message": message}
        self._folder.write("exit", exited)
        self._courier.close(_exited(exited))

    def _is_deleted(self) -> bool:
        """Whether the experiment has been deleted: the attempt's folder, and the file with the manager's address."""
        address = self._spec.callback_file
        return address is not None and is_gone(address) and is_gone(self._folder.inner)

    def _linger(self) -> None:
        """Stay until all is delivered, the time for it is over, the experiment is deleted, or somebody insists."""
        deadline = time.monotonic() + self._spec.linger_s
        asked = self._wake.terminations
        while not self._courier.done and time.monotonic() < deadline and not self._is_deleted():
            self._wake.wait(min(_LOOK_EVERY_S, deadline - time.monotonic()))
            if self._wake.terminations > asked:
                asked = self._wake.terminations
                deadline = min(deadline, time.monotonic() + _LAST_TRY_S)
        self._courier.stop()
        self._folder.write(
            "delivered",
            {
                "complete": self._outbox.complete,
                "metrics": self._outbox.metrics,
                "output": self._outbox.output,
                "fenced": self._courier.fenced,
            },
        )


def _reap(child: "subprocess.Popen[bytes]") -> Optional[int]:
    """The command's exit code if it has ended; negative for a signal. Also lets go of orphans, for which the keeper
    answers where it is the first process of a container."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return child.poll()
        if pid == 0:
            return None
        if pid == child.pid:
            child.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            return child.returncode


def _status(code: int) -> int:
    """An exit code as a shell tells it."""
    return 128 - code if code < 0 else code


def _sentence(code: int) -> str:
    number = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    if number:
        name = _signal_name(number)
        why = ": the machine or the container may have been out of memory" if number == signal.SIGKILL else ""
        return "killed by {}{}".format(name, why) if code < 0 else "exit code {} ({}{})".format(code, name, why)
    hints = {126: ": a command of it cannot be executed", 127: ": a command of it was not found"}
    return "exit code {}{}".format(code, hints.get(code, ""))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)


def _started(known: Mapping[str, Any]) -> Dict[str, Any]:
    host = str(known.get("host") or socket.gethostname())[:255]
    pid = known.get("pid")
    return {"type": "started", "time": _time(known), "host": host, "pid": pid if isinstance(pid, int) else 0}


def _exited(known: Mapping[str, Any]) -> Dict[str, Any]:
    code = known.get("code")
    return {
        "type": "exit",
        "time": _time(known),
        "code": code if isinstance(code, int) else None,
        "message": str(known.get("message") or "")[: 2 * _MESSAGE_CHARS],
    }


def _time(known: Mapping[str, Any]) -> float:
    """Also of a file that somebody has written to."""
    value = known.get("time")
    return value if isinstance(value, (int, float)) and 0 <= value < 1e11 else time.time()
