"""What services learn of an attempt by themselves: from its folder, or from the log of its job.

A service that shares a disk with the worker writes the specification and asks for the status by `KeeperFolder`; it
implements `TrainingService.reports` by `KeeperFolder.events`, or by `read_events` of a copy of the folder. One that can
only read the platform's log has `read_log`, and `end_status` for the end that it finds there. All may be called again
and again, also while the trial runs: events are numbered, and the manager drops what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import json
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnilite._keeper import recap
from nnilite._keeper.attempt_files import AttemptFiles, deliver_command, end_state
from nnilite._keeper.folder import Folder
from nnilite._keeper.link import MARK
from nnilite._keeper.outbox import LEAST_UNCONFIRMED_S, UNCONFIRMED_S
from nnilite._keeper.plain_file import is_there
from nnilite._keeper.process import identity, is_running
from nnilite._keeper.spool import ATTRIBUTE, SpoolReader
from nnilite.disk_room import DiskRoom
from nnilite.errors import ConfigError, NotFound, ServiceError
from nnilite.foreign_files import TrialFile, copy_file, copy_folder, list_below, open_below
from nnilite.records import (
    EXIT_CODE_MAX,
    TIME_MAX,
    UNSTARTED,
    Attributed,
    EndCause,
    Exited,
    Json,
    KeeperEvent,
    MetricKind,
    Output,
    Reported,
    storable,
)
from nnilite.service import Job, JobState, JobStatus
from nnilite.services.keeper_events import MOST_VALUES, count_values, parse_event, read_value

__all__ = [
    "LEAST_UNCONFIRMED_S",
    "MARK",
    "MOST_REPORTS_BYTES",
    "STREAMS",
    "UNCONFIRMED_S",
    "KeeperFolder",
    "SpoolCopy",
    "check_folder_names",
    "check_stream",
    "copied_events",
    "copy_attempt",
    "copy_attempt_file",
    "end_status",
    "identity",
    "is_running",
    "list_attempt",
    "missing_output",
    "read_events",
    "read_log",
    "read_metrics",
]

log = logging.getLogger(__name__)

_MARK = MARK.encode()
_FOLDER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_READ_REPORTS = 10_000
_READ_BYTES = 16_000_000
_MOST_OUTPUT_BYTES = 32 << 20
_NOT_COPIED = ("spec.json", ".*.new")
_NAMED = 3

MOST_REPORTS_BYTES = 1 << 30
"""The most that is read of a keeper's file on a worker. Ten million reports take this much."""
_MOST_RECORD_BYTES = 1 << 20
_SURELY_READ_BYTES = 32 << 20  # a spool of this size is read to its end, whatever is in it

STREAMS = ("stdout", "stderr")
"""What a trial prints, each in a file `trial.NAME` of its folder."""


def check_folder_names(job: Job) -> None:
    """Check that trial and experiment can be the names of folders. Raises: ConfigError."""
    for name in (job.trial, job.experiment):
        if not _FOLDER_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} cannot be the name of a folder")


def check_stream(stream: str) -> None:
    """Check the name of a stream. Raises: NotFound."""
    if stream not in STREAMS:
        raise NotFound(f"there is no stream {stream!r}: it is stdout or stderr")


class KeeperFolder:
    """One attempt's folder on a disk of this machine.

    folder = KeeperFolder(path)
    folder.create(job.spec_for(path, code=..., env=environment(...)))
    ... start folder.run_command(keeper) ...
    folder.status(lambda: is_running(handle["keeper"]))

    What is read raises an OSError where it is there and cannot be read now, on a disk in trouble or without file
    descriptors. Nothing is known then: an end that cannot be read is not a job that was lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = AttemptFiles(str(path))
        self.spec_file = path / "spec.json"

    def create(self, spec: Mapping[str, Json]) -> None:
        """Make the folder with the keeper's specification, both for their owner alone. Raises: OSError."""
        self._files.create(spec)

    def spec(self) -> Mapping[str, Any]:
        """Return the specification; {} if there is none (any more)."""
        return self._files.spec()

    def grace_s(self) -> float:
        """Return the time that the trial was promised between SIGTERM and SIGKILL, in seconds."""
        return read_clock_time(self.spec().get("grace_s")) or 0.0

    def forget_spec(self) -> None:
        """Take the specification away, since it holds the trial's token; the trial's files stay."""
        self.spec_file.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove what is no longer needed of an ended job: its specification and the note. The trial's files stay."""
        self.forget_spec()
        self._files.forget_note()

    def tidy(self) -> bool:
        """Remove the keeper's own files of an ended job if the manager has all of their content. Return whether it has.

        For `remove`, and for when the keeper has left after that. The trial's files stay.
        """
        return self._files.tidy()

    def is_tidied(self) -> bool:
        """Return whether a trial has run here and only its own files are left. Raises: OSError."""
        return self._files.is_tidied()

    def read_note(self) -> Mapping[str, Any] | None:
        """Return what the service has noted of its job here, such as the handle; None if it has not."""
        return self._files.read_note()

    def keep_note(self, note: Mapping[str, Json]) -> None:
        """Keep the service's note on its job. Raises: OSError."""
        self._files.keep_note(note)

    def run_command(self, keeper: Path) -> list[str]:
        """Return the command that runs the attempt on this machine."""
        return [sys.executable, "-I", "-S", str(keeper), "run", str(self.spec_file)]

    def deliver_command(self, keeper: Path) -> list[str]:
        """Return the command that ends what a killed keeper has left, and delivers what it had not."""
        return deliver_command(sys.executable, str(keeper), self._files)

    def started(self) -> float | None:
        """Return when the trial's command started, in seconds since the epoch; None if it has not."""
        record = self._files.started()
        return read_clock_time(record.get("time")) if record else None

    def trial(self) -> Mapping[str, Any] | None:
        """Return the keeper's record of the trial's process, for `worker_side.running_groups`; None if missing."""
        return self._files.started()

    def read_end(self, host: str = "") -> JobStatus | None:
        """Return how the trial ended, according to its keeper; None if there is no record."""
        record = self._files.exited()
        return None if record is None else end_status(record, host, self.started())

    def status(self, runs: Callable[[], bool], host: str = "") -> JobStatus:
        """Return the status of the job. `runs` returns whether its keeper runs; LOST if that ended without a record.

        `runs` is called first, and then the end is read: in the other order, an end in between looks like a loss.
        """
        kept = runs()
        ended = self.read_end(host)
        if ended is not None:
            return ended
        started = self.started()
        if not kept:
            return JobStatus(JobState.LOST, "the trial's keeper is gone", host=host, started=started)
        if started is None:
            return JobStatus(JobState.WAITING, "the trial's keeper is starting", host=host)
        return JobStatus(JobState.RUNNING, host=host, started=started)

    def was_begun(self) -> bool:
        """Return whether a keeper has ever been at work here. Raises: OSError."""
        return self._files.was_begun()

    def has_keeper(self) -> bool:
        """Return whether a keeper is at work here, by the lock that it holds."""
        return self._files.has_keeper()

    def waits_for_keeper(self) -> bool:
        """Return whether the attempt is to be run and no keeper has begun. Raises: OSError."""
        return self._files.waits_for_keeper()

    def may_have_keeper(self) -> bool:
        """Return the same, but True as well where no keeper has begun yet, or the file system has no locks."""
        return self._files.waits_for_keeper() or self._files.is_locked() is not False

    def keeper(self) -> int:
        """Return the process id of the keeper at work here, searched among all processes; 0 if there is none. Slow."""
        return self._files.keeper()

    def events(self) -> list[KeeperEvent]:
        """Return the events in the keeper's files: see `read_events`."""
        return read_events(self.path)

    def output(self, stream: str, offset: int, limit: int) -> bytes:
        """Return a piece of "stdout" or "stderr"; b"" where there is nothing (yet). Raises: OSError."""
        try:
            with open_below(self.path, f"trial.{stream}") as file:
                file.seek(offset)
                return file.read(limit)
        except NotFound:
            return b""


def copy_attempt(folder: Path, target: Path, *left_out: str) -> None:
    """Copy what a trial and its keeper have written, also while they still write. Blocks.

    Left out are the specification, drafts, what matches the patterns `left_out`, links, pipes, sockets and devices,
    and what goes while this copies: see `nnilite.foreign_files`. Raises: NotFound if the folder is gone, ServiceError.
    """
    with _readable(folder):
        taken = copy_folder(folder, target, *_NOT_COPIED, *left_out)
    if taken.unreadable:
        first = ", ".join(taken.unreadable[:_NAMED])
        raise ServiceError(f"{len(taken.unreadable)} files of {folder} cannot be read by this user, such as {first}")


def copy_attempt_file(folder: Path, path: str, target: Path, most_bytes: int | None = None) -> None:
    """Copy one file of a trial's folder to the same name in `target`. Blocks. Raises: NotFound, ServiceError."""
    if path in _NOT_COPIED:
        raise NotFound(f"there is no file {path!r} in the trial's folder")
    with _readable(folder):
        copy_file(folder, path, target, most_bytes)


def list_attempt(folder: Path, *left_out: str) -> tuple[TrialFile, ...]:
    """Return what is in a trial's folder, see `list_below`; what `copy_attempt` leaves out is left out. Blocks.

    Raises: NotFound if the folder is gone, ServiceError.
    """
    patterns = (*_NOT_COPIED, *left_out)
    with _readable(folder):
        return list_below(folder, lambda parts: any(fnmatch.fnmatch(parts[-1], pattern) for pattern in patterns))


@contextlib.contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ServiceError(f"the trial's folder {folder} cannot be copied: {error}") from error


def end_status(exited: Mapping[str, Any], host: str = "", started: Json = None) -> JobStatus:
    """Return the status of a job that has ended, by its keeper's record: `code`, `message`, `cause` and `time`.

    The trial may have written to that record: impossible values are left out.
    """
    code = exited.get("code")
    code = code if type(code) is int and abs(code) <= EXIT_CODE_MAX else None
    message = str(exited.get("message") or "")
    if exited.get("cause") == EndCause.MACHINE.value:
        message = f"{UNSTARTED}: {message}"
    state = JobState(end_state({**exited, "code": code}))
    return JobStatus(
        state, message, code, host, started=read_clock_time(started), ended=read_clock_time(exited.get("time"))
    )


def read_clock_time(value: Json) -> float | None:
    """Return seconds, as far as any clock goes; of NaN no comparison is true."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= TIME_MAX
    return float(value) if fits else None


def read_events(directory: Path) -> list[KeeperEvent]:
    """Return the events in an attempt's files: its start, its metrics, its end; [] if there is nothing yet.

    `directory` is the attempt's folder, `<experiment>/trials/<trial>/<attempt>`. Output is not among the events. The
    trial can write to these files too: an impossible start or end is left out.
    Raises: OSError if one of them exists and cannot be read now.

    >>> read_events(Path("trials/Xy12z/0"))  # doctest: +SKIP
    [Started(time=1.5, host='box', pid=12), Reported(index=0, kind=FINAL, ...), Exited(time=9.0, code=0)]
    """
    folder = Folder(str(directory))
    started, exited = folder.read("started"), folder.read("exit")  # the end first: nothing is reported after it
    start = _event("started", started, directory)
    end = _event("exit", exited, directory)
    reader, run = SpoolReader(folder.metrics), folder.run()
    reports = list(_reported(reader, bool(end), run))
    return [*start, *reports, *(_add_remark(event, reader.remark()) for event in end)]


def _add_remark(event: KeeperEvent, remark: str) -> KeeperEvent:
    """Return the end as its keeper would report it: with what could not be read of the reports."""
    if not remark or not isinstance(event, Exited):
        return event
    return replace(event, message="\n".join(filter(None, [event.message, remark])))


def _event(kind: str, record: Json, directory: Path) -> list[KeeperEvent]:
    if record is None:
        return []
    try:
        return [parse_event({"host": "", "pid": 0, **record, "type": kind})]
    except ConfigError as error:
        log.warning("%s has an unreadable keeper file .nni/%s: %s", directory, kind, error)
        return []


def read_metrics(directory: Path) -> Iterator[Reported | Attributed]:
    """Yield the metrics and attributes of an attempt, in order; none of a last line without a line end."""
    return _reported(SpoolReader(Folder(str(directory)).metrics), False, "")


def _reported(reader: SpoolReader, ended: bool, run: str) -> Iterator[Reported | Attributed]:
    while reports := reader.read(_READ_REPORTS, _READ_BYTES, final=ended):
        for report in reports:
            value, refused = read_value(report.value)
            when = float(report.time)
            if report.kind == ATTRIBUTE:
                yield Attributed(report.number, storable(report.name), value, when, refused, run)
            else:
                kind = MetricKind(report.kind)
                yield Reported(report.number, kind, report.sequence, value, when, refused, run)


class ReportCount:
    """Counts what an attempt has reported, and reads nothing of it twice. Blocks.

    `directory` is the attempt's folder, as for `read_events`.
    """

    def __init__(self, directory: Path) -> None:
        self._reader = SpoolReader(Folder(str(directory)).metrics)

    def read(self) -> int:
        """Return how many metrics and attributes there are by now. Raises: OSError."""
        while self._reader.read(_READ_REPORTS, _READ_BYTES):
            continue
        return self._reader.count


class SpoolCopy:
    """A copy of the spool of a worker that grows by pieces, as far as anybody would read it. Blocks.

    `folder` is the copy of the attempt's folder, with `.nni` in it, which `read_events` reads.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".nni" / "metrics"
        self._reader = SpoolReader(str(self._path))
        self._room = DiskRoom(folder)
        self.size = 0

    @property
    def wants_more(self) -> bool:
        """Whether what follows would be read. It is not after too many bytes, or too many that are not reports."""
        return self.size < MOST_REPORTS_BYTES and not self._reader.given_up

    def add(self, piece: bytes) -> None:
        """Take the next bytes. Raises: NoRoom, OSError."""
        self._room.count(len(piece))
        with self._path.open("ab") as file:
            file.write(piece)
        self.size += len(piece)
        if self.size > _SURELY_READ_BYTES:
            while self._reader.read(_READ_REPORTS, _READ_BYTES):
                continue


async def copied_events(folder: Path, read: Callable[[str, int], Awaitable[bytes]]) -> list[KeeperEvent]:
    """Copy the files of an attempt on another machine to an empty folder here, and return their events.

    For `TrainingService.reports`. `read` gives a piece of ".nni/NAME" from an offset, b"" at its end. What the trial
    may have put there instead of these files is left out. Raises: OSError, and what `read` raises.
    """
    (folder / ".nni").mkdir()
    for name in ("exit", "started"):  # the end first: nothing is reported after it
        record = b""
        while len(record) <= _MOST_RECORD_BYTES and (piece := await read(f".nni/{name}", len(record))):
            record += piece
        (folder / ".nni" / name).write_bytes(record[:_MOST_RECORD_BYTES])
    spool = SpoolCopy(folder)
    while spool.wants_more and (piece := await read(".nni/metrics", spool.size)):
        await asyncio.to_thread(spool.add, piece)
    return await asyncio.to_thread(read_events, folder)


async def missing_output(
    here: Path, read: Callable[[str, int], Awaitable[bytes]], events: Sequence[KeeperEvent] = ()
) -> list[Output]:
    """Return what a trial has written that has not come to its folder here; at most 32 MB of each stream.

    For `TrainingService.reports`: after the end there is no wait for output that a keeper still delivers. `read` gives
    a piece of "trial.stdout" or "trial.stderr" from an offset, b"" at its end. `events`: what the same folder says of
    its run; the output is of that run, too.
    """
    found: list[Output] = []
    run = next((event.run for event in events if event.run), "")
    for stream in STREAMS:
        brought = here / f"trial.{stream}"
        offset = brought.stat().st_size if is_there(brought) else 0
        end = offset + _MOST_OUTPUT_BYTES
        while offset < end and (piece := await read(brought.name, offset)):
            found.append(Output(stream, offset, piece, run))
            offset += len(piece)
    return found


def read_log(text: str | bytes) -> list[KeeperEvent]:
    """Return the events in the output of a keeper that reports to standard output. Lines that are cut are left out.

    A recap repeats events, which fills holes in the log: they come again, by the same numbers.
    """
    if isinstance(text, str):
        text = text.encode("utf-8", "replace")
    # Recaps are compressed, so a trial that writes lines of its own could have some bytes become gigabytes.
    room = recap.KEPT_BYTES + len(text)
    events: list[KeeperEvent] = []
    for line in text.split(b"\n"):
        _, mark, data = line.partition(_MARK)  # a platform may put the time in front of each line
        if not mark:
            continue
        try:
            found, used = _read_line(data, room)
            room -= used
            events.extend(map(parse_event, found))
        except (ValueError, RecursionError, ConfigError) as error:
            log.debug("not an event: %s: %.200r", error, line)
    return events


def _read_line(data: bytes, room: int) -> tuple[Sequence[Json], int]:
    """Return the events in a line, and how many bytes of the room for recaps they take. Raises: ValueError."""
    if count_values(data) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES} values")
    line = json.loads(data.decode("utf-8", "replace"))
    if not isinstance(line, dict) or line.get("type") != recap.TYPE:
        return [line], 0
    return recap.unpack(line, room)
