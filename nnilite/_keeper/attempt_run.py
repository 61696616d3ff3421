"""Runs one attempt, from the specification to the last delivered event.

prepare the folder -> start the command -> watch it -> end its group -> write how it ended -> deliver the rest

A failure before the start is reported as an exit without a code. If it is the machine's (a full disk, no descriptors,
no code package), its cause says so, and the manager tries the trial again, on another machine if it can.

What only watches and reports is loaded after the start of the command, which does not wait for it.
"""

from __future__ import annotations

import os
import time

from . import command_start, plain_file, process, signals, trial_environment
from .command_start import EndUnknown, NotStarted
from .exit_code import sentence, status
from .folder import Folder, is_gone
from .niceness import Niceness
from .output import OutputFile
from .saver_choice import choose_saver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Tuple, TypeVar

    from .command_start import StartedCommand
    from .preloaded_start import PreloadedStarts
    from .report_sender import ReportSender
    from .spec import Spec
    from .wake import Wake

    T = TypeVar("T")

NOT_STARTED = 4
FENCED = 5
OTHER_KEEPER = 3
ABANDONED = 6
UNDELIVERED = 7

_POLL_S = (0.01, 0.2)  # the time between two looks at the files: while they grow, and while nothing happens
_FIRST_LOOK_S = 0.25  # nothing is sent before, unless the trial ends, which a signal reports
_OUTPUT_EVERY_S = 0.5  # output alone is not sent more often than this
_MESSAGE_CHARS = 2000
_FOLDER_GONE = "{} is gone, and results that it had: a trial must not delete its $NNI_OUTPUT_DIR, only its files in it"
_LAST_TRY_S = 10.0
_LOOK_EVERY_S = 2.0
_SIGTERM_LAG_S = 0.5
_BY_SIGTERM = (-signals.SIGTERM, 128 + signals.SIGTERM)  # the latter is what a shell says of its command
_THREADS_END_S = 0.5
_READ_PATIENCE_S, _READ_AGAIN_S = 10.0, 0.5
_IMPORT_S = 120.0  # the same for this keeper's own modules, without which its trial is lost


def run(spec: Spec, wake: Wake) -> int:
    """Run the attempt. Return the keeper's exit code.

    An attempt runs only once: if an earlier keeper has run it, its undelivered events are delivered instead.
    """
    if spec.distributed:
        from .node_start import placed

        spec = placed(spec)
    folder = Folder(spec.directory)
    return _run(AttemptRun(spec, folder, wake), folder)


def run_one_of_several(spec: Spec, wake: Wake, preloaded: Optional[PreloadedStarts]) -> Tuple[int, bool, bool]:
    """Run one attempt. Return its exit code, whether it is delivered, and whether this process can run another.

    It can if nothing is left of this one. By then the attempt's folder is unlocked, so that this process is not
    mistaken for its keeper.
    """
    import threading

    folder = Folder(spec.directory)
    attempt = AttemptRun(spec, folder, wake, preloaded)
    code = _run(attempt, folder)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(_THREADS_END_S)
    folder.unlock()
    return code, attempt.delivered, folder.can_lock and threading.active_count() == 1


def _run(attempt: AttemptRun, folder: Folder) -> int:
    try:
        folder.create()
        if not folder.lock():
            return OTHER_KEEPER
        first = folder.reserve(attempt.run_id)
    except OSError as error:
        text = "the trial's folder {} cannot be written: {}".format(folder.path, error.strerror)
        code = attempt.report_not_started(text, by_machine=True)
        folder.give_back()
        return code
    return attempt.run() if first else attempt.go_on()


def deliver(spec: Spec, wake: Wake) -> int:
    """Deliver what a dead keeper has not delivered. Return the keeper's exit code. Raises: OSError."""
    folder = Folder(spec.directory)
    if not plain_file.is_folder_there(folder.inner):
        return 0
    if not folder.lock():
        return OTHER_KEEPER
    return AttemptRun(spec, folder, wake).deliver()


class AttemptRun:
    """Owns the trial's process. The sender's thread owns the delivery."""

    def __init__(self, spec: Spec, folder: Folder, wake: Wake, preloaded: Optional[PreloadedStarts] = None) -> None:
        self._preloaded = preloaded
        self._spec = spec
        self._folder = folder
        self._wake = wake
        self._outputs = {
            "stdout": OutputFile(folder.stdout, spec.max_output_bytes),
            "stderr": OutputFile(folder.stderr, spec.max_output_bytes),
        }
        self._spool = OutputFile(folder.metrics, 0)
        # The identity of this start of the command. Each event names it, so that the manager never mixes two runs.
        self.run_id = spec.run or os.urandom(8).hex()
        self.delivered = False  # whether the manager has acknowledged everything, the end included
        self._made: Optional[ReportSender] = None
        self._saver = choose_saver(spec, folder)
        self._why = ""  # the sentence on why the trial is being ended
        self._cause = ""  # the same as a value of `nnilite.records.EndCause`
        self._kill_at: Optional[float] = None
        self._began = (time.time(), time.monotonic())
        self._unwritten: Dict[str, Any] = {}  # the record of the end, while the disk cannot take it
        self._output_waits = False
        self._next_output = 0.0
        self._next_look = time.monotonic() + _LOOK_EVERY_S

    def run(self) -> int:
        """Run the command to its end."""
        try:
            command = self._start()
        except NotStarted as error:
            return self.report_not_started(str(error), error.by_machine)
        niceness = Niceness(command.pid, self._spec.niceness)
        started = dict(command.identity, time=self._began[0], run=self.run_id)
        self._folder.write("started", started)
        self._sender.notify(started)
        self._sender.measure(started)
        self._sender.start()
        self._saver.start(self._sender)
        code = self._watch(command, niceness)
        command.close()
        self._end_rest(command.pid)
        self._look()
        if self._spec.distributed and not self._why:
            self._why, self._cause = _reason_of_nodes(self._folder)
        message = self._make_message(code)
        if not self._sender.fenced:
            asked = max(self._wake.terminations, 1)  # the first signal may have been meant for the trial only
            unsaved = self._saver.finish(
                code == 0, lambda: self._wake.terminations <= asked and not self._sender.fenced
            )
            message = "\n".join(part for part in (message, unsaved) if part)
        self._tell_exit(code, message)
        if self._sender.fenced:
            return FENCED
        self._linger()
        return NOT_STARTED if code is None else status(code)

    def report_not_started(self, message: str, by_machine: bool = False) -> int:
        """Report to the manager why the command cannot be started, and whether that is this machine's fault."""
        self._folder.add_to_log(message)
        if by_machine and not self._cause:
            self._cause = "machine"
        self._tell_exit(None, message)
        self._linger()
        return NOT_STARTED

    def go_on(self) -> int:
        """Continue an attempt whose command an earlier keeper has started. Otherwise the same as `run`."""
        self.deliver()
        exited = self._read_record("exit")
        if exited is None:
            return ABANDONED
        code = exited.get("code")
        return status(code) if isinstance(code, int) else NOT_STARTED

    def deliver(self) -> int:
        """End what still runs of an attempt whose keeper died, then deliver what is undelivered.

        Only its keeper could have known how the trial ended, so without an exit file no end is reported.
        """
        self.run_id = _read_patiently(self._folder, self._wake, "the identity of the run", self._folder.run) or ""
        started = self._read_record("started")
        if started is not None and process.is_running(started):
            process.end_group(int(started["pid"]), self._spec.grace_s)
        for group in process.find_groups(self._spec.job, self._spec.directory):
            process.end_group(group, self._spec.grace_s)
        exited = self._read_record("exit")
        if started is not None:
            self._sender.notify(started)
        self._sender.close(exited, self._rank_files())
        self._linger()
        if self._sender.fenced:
            return FENCED
        return 0 if self._sender.outbox.complete else UNDELIVERED

    def _rank_files(self) -> Dict[str, OutputFile]:
        """Return what the first node of a distributed trial has collected of its ranks, to be sent as output is."""
        if not self._spec.distributed:
            return {}
        from .node_start import list_collected

        return list_collected(self._spec, self._folder)

    def _read_record(self, name: str) -> Optional[Dict[str, Any]]:
        """Return a record that an earlier keeper has written; None if there is none."""
        return _read_patiently(self._folder, self._wake, name, lambda: self._folder.read(name))

    @property
    def _sender(self) -> ReportSender:
        """Make the sender when there is something to report."""
        if self._made is None:
            outputs = self._outputs if self._spec.send_output else {}
            given = (self._spec, self._folder, outputs, self.run_id, self._wake.poke)
            self._made = _read_patiently(
                self._folder, self._wake, "this program", lambda: _make_sender(*given), _IMPORT_S
            )
            if self._made is None:
                raise OSError("the keeper's own modules cannot be read")
        return self._made

    def _start(self) -> StartedCommand:
        """Start the command, by the preloader if there is one and it can. Raises: NotStarted."""
        self._check_wanted()
        try:
            self._folder.write_parameters(self._spec.parameters)
            if self._spec.storage:
                self._sender.start()  # for heartbeats, since a storage may take its time
            directory = self._code()
            self._saver.restore(self._wanted)
            env = trial_environment.environment_of(self._spec, self._folder, directory, self._saver.checkpoint_dir)
        except OSError as error:
            raise NotStarted("the trial's folder cannot be prepared: {}".format(error), by_machine=True) from error
        self._check_wanted()
        try:
            self._began = (time.time(), time.monotonic())
            command = _command_of(self._spec, self._folder)
            preloaded = self._preloaded and self._preloaded.start(command, directory, env, self._folder, self._wake)
            return preloaded or command_start.start(command, directory, env, self._folder.stdout, self._folder.stderr)
        except (OSError, ValueError) as error:  # a ValueError is a zero byte in command or environment
            text = "the trial command cannot be started in {}: {}{}".format(
                directory, error, command_start.find_cure(error)
            )
            raise NotStarted(text, command_start.is_resource_shortage(error)) from error

    def _check_wanted(self) -> None:
        """Check that the trial's end was not requested already. Raises: NotStarted."""
        self._cause = "fenced" if self._made and self._made.fenced else self._asked()
        if self._cause:
            raise NotStarted("canceled before its command was started")

    def _code(self) -> str:
        """Return the folder in which the command runs. Raises: NotStarted, OSError."""
        if not self._spec.code:
            return self._folder.path
        if "in_place" in self._spec.code:
            return self._spec.code["in_place"]
        from . import working_copy

        target = os.path.join(self._folder.path, "code")
        try:
            archive = self._spec.code.get("archive")
            archive = archive or self._saver.fetch_code(self._spec.code["download"], self._wanted)
            if not archive:
                from .link import RestLink

                self._sender.start()  # for heartbeats meanwhile
                manager = self._spec.distributed.get("manager") or {}
                link, name = RestLink(self._spec.but(**manager)), self._spec.code["download"]
                archive = working_copy.download(link, name, self._folder.inner, lambda: not self._wanted())
            working_copy.unpack(archive, target)
        except working_copy.CodeError as error:
            raise NotStarted(str(error), by_machine=True) from error
        return target

    def _wanted(self) -> bool:
        """Return whether the trial's end has not been requested."""
        return not (self._asked() or (self._made and self._made.fenced))

    def _watch(self, command: StartedCommand, niceness: Niceness) -> Optional[int]:
        """Wait for the command's end, watch its files, and end it if requested. Return its exit code, if known."""
        shortest, longest = _POLL_S
        pause = _FIRST_LOOK_S
        while True:
            self._wake.wait(pause, *command.files)
            try:
                code = command.poll()
            except EndUnknown as error:
                if not self._why:
                    self._why, self._cause = str(error), "machine"
                return None
            if code is not None:
                if code and not self._why and _has_sigterm_come(self._wake, code):
                    self._why, self._cause = self._find_reason(time.monotonic())
                return code
            niceness.apply()
            self._sender.start()
            self._end_if_wanted(command.pid)
            pause = shortest if self._look() else min(longest, pause * 1.5)
            if self._kill_at is not None:
                pause = min(pause, max(0.001, self._kill_at - time.monotonic()))

    def _look(self) -> bool:
        """Look at the files once. Return whether one of them should be looked at again soon."""
        reported = self._spool.grown()
        printed = [output for output in self._outputs.values() if output.grown()]
        self._output_waits = self._output_waits or (self._spec.send_output and bool(printed))
        if reported or (self._output_waits and time.monotonic() > self._next_output):
            self._output_waits = False
            self._next_output = time.monotonic() + _OUTPUT_EVERY_S
            self._sender.notify()
        for output in printed:
            try:
                output.cut()
            except OSError as error:
                self._folder.add_to_log("{} cannot be cut: {}".format(output.path, error))
        return reported or any(output.near_cap for output in printed)

    def _end_if_wanted(self, group: int) -> None:
        """End the trial if there is a reason: SIGTERM, then SIGKILL after the grace. A fenced attempt gets no grace."""
        now = time.monotonic()
        if self._sender.fenced:
            self._why, self._cause = "fenced: its manager has begun another run of this trial, or is over", "fenced"
            process.signal_group(group, signals.SIGKILL)
        elif self._kill_at is None:
            self._why, self._cause = self._find_reason(now)
            if self._why:
                self._kill_at = now + self._spec.grace_s
                process.signal_group(group, signals.SIGTERM)
        elif now >= self._kill_at:
            process.signal_group(group, signals.SIGKILL)
            self._kill_at = now + 1

    def _find_reason(self, now: float) -> Tuple[str, str]:
        """Return why the trial must end, as a sentence and as an end cause; both empty if it may continue."""
        asked = self._asked()
        if asked:
            return "canceled by SIGTERM" if asked == "interrupted" else "canceled", asked
        limit = self._spec.max_duration_s
        if limit and now - self._began[1] > limit:
            return "exceeded its time limit of {:g} s".format(limit), "duration"
        orphaned = self._explain_orphan(now)
        return orphaned, "orphaned" if orphaned else ""

    def _asked(self) -> str:
        """Return what requested the trial's end: its manager ("canceled"), a signal ("interrupted") or nothing ("")."""
        if self._made and self._made.cancel:
            return "canceled"
        return "interrupted" if self._wake.terminations else ""

    def _explain_orphan(self, now: float) -> str:
        """Return why the trial counts as orphaned; "" if it does not."""
        limit = self._spec.orphan_s
        if limit and self._sender.silence_s() > limit:
            return "its manager was silent for {:g} s".format(limit)
        if now > self._next_look:
            self._next_look = now + _LOOK_EVERY_S
            if _is_deleted(self._spec, self._folder):
                return "its experiment was deleted"
        return ""

    def _end_rest(self, group: int) -> None:
        """End all that the command has left running, within what remains of the grace.

        If the keeper ended the command, this includes processes that have left its group. Looking for these after every
        trial would cost too much.
        """
        if process.signal_group(group, 0):
            process.end_group(group, self._compute_grace_s())
        if self._why:
            for other in process.find_groups(self._spec.job, self._spec.directory):
                process.end_group(other, self._compute_grace_s())

    def _compute_grace_s(self) -> float:
        """Return the seconds that remain of the grace."""
        if self._sender.fenced:
            return 0.0
        return self._spec.grace_s if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())

    def _make_message(self, code: Optional[int]) -> str:
        """Return one sentence on the end, and after a failure the last lines of the trial's standard error."""
        parts = [self._why or sentence(code or 0)] if code or self._why else []
        if not self._why and is_gone(self._folder.inner):  # and with it what the trial wrote of its reason
            parts.append(_FOLDER_GONE.format(self._folder.inner))
        if code and self._folder.is_disk_full():
            parts.append("the disk of the trial's folder {} is full".format(self._folder.path))
        if code and not self._why:
            parts.append(self._outputs["stderr"].last(_MESSAGE_CHARS))
        return "\n".join(part for part in parts if part)

    def _tell_exit(self, code: Optional[int], message: str) -> None:
        wall, monotonic = self._began
        when = wall + time.monotonic() - monotonic  # the clock may have been set meanwhile
        exited = {"time": when, "code": code, "message": message, "cause": self._cause, "run": self.run_id}
        self._unwritten = {} if self._folder.write("exit", exited) else exited
        self._sender.close(exited, self._rank_files())

    def _write_end(self) -> None:
        """Try again to write the end after disk errors: if this process is killed, only that file has it."""
        if self._unwritten and self._folder.write("exit", self._unwritten):
            self._unwritten = {}

    def _linger(self) -> None:
        """Stay until all is delivered, the time is over, the experiment is deleted, or a further SIGTERM comes."""
        left_s = self._spec.linger_s
        asked = min(self._wake.terminations, 1)  # the first signal may have been meant for the trial only
        while not self._sender.done and left_s > 0 and not _is_deleted(self._spec, self._folder):
            self._sender.start()
            pause = min(_LOOK_EVERY_S, left_s)
            # Time in which this process was stopped does not count: nothing could be delivered in it.
            left_s -= self._wake.wait_awake(pause)
            self._write_end()
            if self._wake.terminations > asked:
                asked = self._wake.terminations
                left_s = min(left_s, _LAST_TRY_S)
        self._sender.stop()
        self._write_end()
        outbox = self._sender.outbox
        self.delivered = outbox.complete and bool(self._spec.callback or self._spec.callback_file)
        self._folder.write(
            "delivered",
            {
                "complete": outbox.complete,
                "whole": outbox.whole,
                "metrics": outbox.metrics,
                "output": outbox.output,
                "fenced": self._sender.fenced,
            },
        )


def _make_sender(
    spec: Spec, folder: Folder, outputs: Dict[str, OutputFile], run_id: str, poke: Callable[[], None]
) -> ReportSender:
    """Import what reports need, which a trial's start did not wait for, and make the sender."""
    from .link_choice import link_of
    from .outbox import Outbox
    from .report_sender import ReportSender

    return ReportSender(spec, folder, Outbox(folder, outputs, run_id), link_of(spec), poke)


def _command_of(spec: Spec, folder: Folder) -> str:
    """Return the trial's command, or the one that starts its processes on this node. Raises: OSError."""
    if not spec.distributed:
        return spec.command
    from . import node_start

    return node_start.command(spec, folder)


def _reason_of_nodes(folder: Folder) -> Tuple[str, str]:
    """Return why the nodes of a distributed trial have ended it, as a sentence and as an end cause."""
    record = folder.read("ranks") or {}
    return str(record.get("message") or ""), str(record.get("cause") or "")


def _read_patiently(
    folder: Folder, wake: Wake, what: str, read: Callable[[], Optional[T]], limit_s: float = _READ_PATIENCE_S
) -> Optional[T]:
    """Read something of an earlier keeper, or a module; try again while the disk fails, and stop after a while."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return read()
        except (OSError, ImportError) as error:
            if time.monotonic() > deadline:
                folder.add_to_log("{} cannot be read: {}".format(what, error))
                return None
        wake.wait(_READ_AGAIN_S)


def _is_deleted(spec: Spec, folder: Folder) -> bool:
    """Return whether the experiment has been deleted: the attempt's folder, and the file with the manager's address."""
    address = spec.callback_file
    return address is not None and is_gone(address) and is_gone(folder.inner)


def _has_sigterm_come(wake: Wake, code: int) -> bool:
    """Return whether the keeper got a SIGTERM, too, when the command has ended with a code other than 0.

    A platform may send the signal to all processes of a job at once, and then the command may be gone before the signal
    has reached the keeper.
    """
    return wake.wait_for_termination(_SIGTERM_LAG_S if code in _BY_SIGTERM else 0.0)
