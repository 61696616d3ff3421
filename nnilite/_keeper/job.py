"""Runs an attempt as the job of a platform that only runs a command: `keeper.pyz job START.json OPTIONS`.

START has the bootstrap's instructions, with `files`, the folder that they were in, and `failed` if there is no code.
They are in a file only where the bootstrap cannot become the keeper itself. Of its options, these are read here:

    --role NAME         this process's role in the job: `roles` has for it {"reports": whether it reports for the
                        trial, "spec": what differs in its specification}
    --rank VARIABLE     the environment variable with the number of this process within its role. Only number 0 reports
                        for the trial; the others print their events and output
    --task NAME         `run`: run the attempt. `resume`: the same, on a platform that may restart a job within the
                        attempt: continue after the reports of the job before. `prepare`: only unpack the code, for a
                        container that runs a command of the platform's own
    --checkpoints DIR   the folder for checkpoints
    --storage FILE      the storage for checkpoints, as `storage` of a specification; the file is removed

A job that stays costs money. So if the platform keeps logs (`log_stays`), the keeper does not wait long for an
unreachable manager: it prints undelivered events to the log, where the service reads them. With `log_tells_end` the end
of the trial is printed in any case, as the last event. `shared` says that all processes of the job have the same
folder.
"""

from __future__ import annotations

import os
import sys

from nnilite._cpython import dumps, loads

from . import attempt_run, bootstrap_program, command_start, process, signals
from .folder import Folder
from .plain_file import is_there, open_regular
from .spec import SpecError, parse
from .wake import Wake

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Dict, Mapping, Optional, Sequence

    from .spec import Spec

_LINGER_S = 10.0
_LOG_IS_READ_S = 10.0
_LAST_TRY_S = 5.0
_LEFT_OUTPUT_BYTES = 1_000_000  # the most that is printed of each stream
_PIECE_BYTES = 256 * 1024
_ENDED_BY_SIGTERM = 143


class _ProcessRole:
    """The task of one process of the job."""

    def __init__(self, spec: Dict[str, Any], reports: bool, waits_for_reader: bool) -> None:
        self.spec = spec  # the keeper's specification
        self.reports = reports
        # The log goes away with the job, and the service has yet to read its end.
        self.waits_for_reader = waits_for_reader


def run(words: Sequence[str]) -> int:
    """Do what the instructions in the file of the first word say. Return the exit code."""
    try:
        with open(words[0], encoding="utf-8") as file:
            start = loads(file.read())
        os.unlink(words[0])
    except OSError as error:
        return _report_not_started(bootstrap_program.read_options(words[1:]), error, by_machine=True)
    return attend(start, os.path.dirname(words[0]), words[1:])


def attend(start: Mapping[str, Any], place: str, words: Sequence[str]) -> int:
    """Do what the instructions say, and remove `place`, the folder of the bootstrap. Return the exit code."""
    wake = Wake()
    wake.listen()
    options = bootstrap_program.read_options(words)
    try:
        return _do(start, options, place, wake)
    except command_start.NotStarted as error:
        return _report_not_started(options, error, error.by_machine)
    except (SpecError, OSError) as error:
        return _report_not_started(options, error, isinstance(error, OSError))
    finally:
        import shutil

        shutil.rmtree(place, ignore_errors=True)


def _report_not_started(options: Mapping[str, str], error: Exception, by_machine: bool) -> int:
    """Report an attempt that cannot be run, and whether that is this machine's fault. Return the exit code."""
    end = {"code": None, "message": str(error), "cause": "machine" if by_machine else ""}
    bootstrap_program.tell_end(options.get("message"), end)
    return attempt_run.NOT_STARTED


def _do(start: Mapping[str, Any], options: Mapping[str, str], place: str, wake: Wake) -> int:
    role = _role(start, options, os.environ)
    spec = parse(role.spec)
    task = options.get("task", "run")
    if task == "prepare":
        return _prepare(spec, place)
    if task == "resume":
        return _resume(role.spec, options.get("message"), place, wake)
    _leave_in_time(wake, spec.grace_s)
    code = _run(spec, start.get("failed") or "", wake)
    _write_outcome(spec.directory, options.get("message"))
    _leave(spec, wake)
    if start.get("log_tells_end") and role.reports:  # some platforms have one log for all processes
        _print_end(spec.directory)
    if role.waits_for_reader:
        wake.wait(_LOG_IS_READ_S)
    return code


def _role(start: Mapping[str, Any], options: Mapping[str, str], environment: Mapping[str, str]) -> _ProcessRole:
    """Return the task of this process, by its role and its number within the role."""
    name = options.get("role", "")
    own = (start.get("roles") or {}).get(name) or {}
    spec = dict(start["spec"], **(own.get("spec") or {}))
    if options.get("storage"):
        from .storage_choice import read_entry

        spec["storage"] = read_entry(options["storage"], spec.get("storage") or {})
    rank = environment.get(options.get("rank", "")) or "0"
    reports = own.get("reports", True) and rank == "0"
    directory = options["work"]
    if not reports:
        spec.update(report="stdout", send_output=True)
        if spec.get("storage"):  # the reporting process saves for all
            spec["storage"] = dict(spec["storage"], read_only=True)
        if start.get("shared"):
            directory = os.path.join(directory, "{}-{}".format(name, rank))
    if options.get("task") == "resume":
        directory = os.path.join(directory, "group-" + (environment.get("ADAPTDL_NUM_RESTARTS") or "0"))
    spec.update(directory=directory, checkpoint_dir=options.get("checkpoints"))
    if spec.get("callback_file"):
        spec["callback_file"] = os.path.join(start["files"], spec["callback_file"])
    log_stays = start.get("log_stays", True)
    if log_stays:
        wanted = spec.get("linger_s")
        spec["linger_s"] = _LINGER_S if wanted is None else min(float(wanted), _LINGER_S)
    return _ProcessRole(spec, reports, spec.get("report") == "stdout" and reports and not log_stays)


def _leave_in_time(wake: Wake, grace_s: float) -> None:
    """Make the keeper stop trying some time after SIGTERM, before the platform kills the job.

    By then, undelivered events must be in the log. A keeper tries until a second SIGTERM, which comes from here.
    """

    def insist(number: int, frame: Optional[FrameType]) -> None:
        wake.terminations += 1

    def end(number: int, frame: Optional[FrameType]) -> None:
        wake.terminations += 1
        signals.setitimer(signals.ITIMER_REAL, grace_s + _LAST_TRY_S)

    signals.signal(signals.SIGALRM, insist)
    signals.signal(signals.SIGTERM, end)
    if wake.terminations:
        signals.setitimer(signals.ITIMER_REAL, grace_s + _LAST_TRY_S)


def _run(spec: Spec, failed: str, wake: Wake) -> int:
    """Run the attempt, or report to the manager why it cannot be run."""
    if not failed:
        return attempt_run.run(spec, wake)
    folder = Folder(spec.directory)
    folder.create()
    return attempt_run.AttemptRun(spec, folder, wake).report_not_started(failed, by_machine=True)


def _write_outcome(directory: str, message_file: Optional[str]) -> None:
    """Write the end, as recorded in the attempt's folder, to the file that the platform reads."""
    folder = Folder(directory)
    started, exited = folder.read("started") or {}, folder.read("exit")
    if exited:
        end: Dict[str, Any] = {"started": started.get("time"), "ended": exited.get("time")}
        end.update({name: exited[name] for name in ("code", "message", "cause") if name in exited})
        bootstrap_program.write_message(message_file, end)


def _leave(spec: Spec, wake: Wake) -> None:
    """Print undelivered events. This process does it, as it holds the lock of the folder."""
    folder = Folder(spec.directory)
    delivered = folder.read("delivered")
    if not delivered or delivered.get("complete") or delivered.get("fenced") or spec.report == "stdout":
        return
    for stream, offset in (delivered.get("output") or {}).items():
        if os.path.exists(os.path.join(spec.directory, "trial." + stream)):  # the output of ranks stays where it is
            _print_output(stream, os.path.join(spec.directory, "trial." + stream), offset)
    attempt_run.AttemptRun(spec.but(report="stdout", send_output=False), folder, wake).deliver()


def _print_end(directory: str) -> None:
    """Print how the trial ended. The log may then have this event twice, which is harmless."""
    exited = Folder(directory).read("exit")
    if exited:
        from .link import MARK

        sys.stdout.write(MARK + dumps(dict(exited, type="exit")) + "\n")
        sys.stdout.flush()


def _print_output(stream: str, path: str, offset: int) -> None:
    import base64

    from .link import MARK

    try:
        with open_regular(path) as file:
            file.seek(offset)
            data = file.read(_LEFT_OUTPUT_BYTES)
    except OSError:  # the trial has deleted the folder, or put something else there
        return
    for begin in range(0, len(data), _PIECE_BYTES):
        piece = base64.b64encode(data[begin : begin + _PIECE_BYTES]).decode("ascii")
        event = {"type": "output", "stream": stream, "offset": offset + begin, "data": piece}
        sys.stdout.write(MARK + dumps(event) + "\n")
    sys.stdout.flush()


def _prepare(spec: Spec, place: str) -> int:
    """Unpack the code. Raises: NotStarted, OSError."""
    from . import working_copy
    from .link import RestLink

    archive = spec.code.get("archive")
    target = os.path.join(spec.directory, "code")
    try:
        if spec.code.get("download"):
            archive = working_copy.download(RestLink(spec), spec.code["download"], place, lambda: False)
        if archive and not os.path.exists(target):
            working_copy.unpack(archive, target)
    except working_copy.CodeError as error:
        raise command_start.NotStarted(str(error), by_machine=True) from error
    return 0


def _resume(spec: Dict[str, Any], message_file: Optional[str], place: str, wake: Wake) -> int:
    """Run the attempt until the platform ends this job. The trial may then save itself, and no end is reported.

    So the keeper is a process of its own here, which is killed before it can report that the trial has ended.
    """
    import subprocess

    directory = spec["directory"]
    spec["run"] = _take_over(directory)
    path = os.path.join(place, "spec.json")
    bootstrap_program.write_private(path, dumps(spec).encode("ascii"))
    child = subprocess.Popen([sys.executable, "-I", "-S", os.path.abspath(sys.argv[0]), "run", path])
    while child.poll() is None and not wake.terminations:
        wake.wait(0.2)
    if not wake.terminations:
        _write_outcome(directory, message_file)
        # AdaptDL takes exit code 143 for a job that it has ended itself.
        return 1 if child.returncode == _ENDED_BY_SIGTERM else child.returncode
    child.kill()
    child.wait()
    started = Folder(directory).read("started")
    if started is not None:
        process.end_group(int(started["pid"]), float(spec.get("grace_s") or _LINGER_S))
    return _ENDED_BY_SIGTERM


def _take_over(directory: str) -> str:
    """Begin with the reports and the output of the job before, so that numbers continue after them.

    Return the identity of its run, which continues; "" if there was none.
    """
    base, _, number = directory.rpartition("-")
    earlier = ["{}-{}".format(base, n) for n in range(int(number) - 1, -1, -1)]
    before = next((path for path in earlier if is_there(Folder(path).metrics)), None)
    if before is None:
        return ""
    import shutil

    old, new = Folder(before), Folder(directory)
    new.create()
    for source, target in ((old.metrics, new.metrics), (old.stdout, new.stdout), (old.stderr, new.stderr)):
        if is_there(source) and not is_there(target):
            shutil.copyfile(source, target)
    return old.run()
