"""Read the logs of an experiment, and what its trials print.

`log trial` prints what one trial wrote, its stdout here on stdout and its stderr on stderr, or one of its files;
without -T it lists where the files of all trials are. `log stdout` and `log stderr` print one stream of a trial with
--trial; without it, the log of the manager.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from nnilite._cli import access, arguments, screen
from nnilite._cli.terminal_output import TrialOutput
from nnilite._experiments import nni_folders
from nnilite._experiments.registry import RegistryEntry
from nnilite._running.manager_client import Client
from nnilite.errors import ConfigError, NotFound

POLL_S = 0.3
_START_BYTES = 64  # the time and more of a log's first line

Read = Callable[[int], bytes]
"""Returns the bytes from an offset on, and none only if there are no more yet."""


def add(parser: argparse.ArgumentParser) -> None:
    groups = parser.add_subparsers(required=True, metavar="WHAT")
    for name in ("stdout", "stderr"):
        stream = groups.add_parser(name, help=f"print what a trial, or the manager, wrote to {name}")
        of_trial = "of this trial (default: of the manager)"
        stream.add_argument("--trial", "--trial-id", "--trial_id", metavar="TRIAL", help=of_trial)
        _reading(stream)
        stream.set_defaults(command=show_stream, stream=name)
    for name in ("manager", "tuner"):
        log = groups.add_parser(name, help=f"print the log of the {name}")
        _reading(log)
        log.set_defaults(command=show_log, stream=name)
    trial = groups.add_parser("trial", help="print what a trial wrote, or where the files of all trials are")
    arguments.add_experiment_argument(trial)
    trial.add_argument("-T", "--trial", "--trial-id", "--trial_id", metavar="TRIAL", dest="trial")
    part = trial.add_mutually_exclusive_group()
    part.add_argument("--file", metavar="FILE", help="print one of its files, as `nnictl trial show` lists them")
    part.add_argument("-f", "--follow", action="store_true", help="keep printing until the trial has ended")
    arguments.add_json_argument(trial)
    trial.set_defaults(command=show_trial)


def _tail(text: str) -> int:
    """Parse a count of lines; elsewhere -T names a trial."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number of lines; name a trial by `--trial {text}`")
    return arguments.positive(text)


def _reading(parser: argparse.ArgumentParser) -> None:
    arguments.add_experiment_argument(parser)
    part = parser.add_mutually_exclusive_group()
    part.add_argument("-T", "--tail", type=_tail, metavar="N", help="only the last N lines")
    part.add_argument("-H", "--head", type=arguments.positive, metavar="N", help="only the first N lines")
    part.add_argument("--path", action="store_true", help="print the path of the file instead")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("-f", "--follow", action="store_true", help="keep printing new lines")
    how.add_argument("--json", action="store_true", help="print JSON: the text, or the path")


def show_log(options: argparse.Namespace) -> None:
    entry = access.find(options, read_only=True)
    name = "tuner" if options.stream == "tuner" else "manager"  # the manager's stdout and stderr are its log
    path = entry.directory / "log" / f"{name}.log"
    if entry.origin is not None:
        path = entry.origin.directory / "log" / ("dispatcher.log" if name == "tuner" else "nnimanager.log")
    if options.path:
        _print_path(options, path)
        return
    if not path.is_file():
        raise NotFound(f"Experiment {entry.id} has no log of the {name} yet ({path}).")
    with closing(_FollowedLog(path)) as log:
        _print(options, log.read, lambda: False, log.find_place)


def show_stream(options: argparse.Namespace) -> None:
    if not options.trial:
        show_log(options)
        return
    with access.reading(options) as manager:
        if options.path:
            folder = _folder(options, manager.trial(options.trial)["attempt"])
            _print_path(options, folder / f"trial.{options.stream}")
            return
        _print(
            options,
            _make_reader_of_trial(manager, options.trial, options.stream),
            lambda: _ended(manager, options.trial),
        )


def show_trial(options: argparse.Namespace) -> None:
    _check_experiment(options)
    with access.reading(options) as manager:
        if options.file and not options.trial:
            raise ConfigError("--file needs one trial: name it with -T TRIAL.")
        if options.file:
            out = _Text(options, options.file)
            manager.download(options.trial, options.file, out.write)
            out.close()
            return
        if not options.trial:
            _print_folders(manager, options)
            return
        if options.json:
            pieces = {stream: _make_reader_of_trial(manager, options.trial, stream) for stream in ("stdout", "stderr")}
            screen.show_json({stream: _whole(read) for stream, read in pieces.items()})
            return
        _print_both(manager, options)


def _check_experiment(options: argparse.Namespace) -> None:
    """Answer a trial's id in the place of the experiment's, which many instructions for NNI have. Raises: NotFound."""
    try:
        access.find(options, read_only=True)
    except NotFound as error:
        if not options.id or options.trial:
            raise
        raise NotFound(f"{error} If it is a trial, write `nnictl log trial -T {options.id}`.") from None


def _print_folders(manager: Client, options: argparse.Namespace) -> None:
    entry = access.find(options, read_only=True)
    folders = [(trial["id"], _find_trial_folder(entry, trial["id"])) for trial in manager.trials()]
    if options.json:
        screen.show_json([{"id": trial, "path": str(path)} for trial, path in folders])
        return
    for trial, path in folders:
        print(f"id:{trial} path:{path}")


def _print_path(options: argparse.Namespace, path: Path) -> None:
    if options.json:
        screen.show_json({"path": str(path)})
    else:
        print(path)


def _whole(read: Read) -> str:
    content = bytearray()
    while data := read(len(content)):
        content += data
    return content.decode(errors="replace")


class _Text:
    """Standard output for bytes or, with --json, a text that is printed as JSON at its end."""

    def __init__(self, options: argparse.Namespace, name: str) -> None:
        self._kept: bytearray | None = bytearray() if options.json else None
        self._name = name
        self._shown = TrialOutput(sys.stdout.buffer)

    def write(self, data: bytes) -> None:
        if self._kept is None:
            self._shown.write(data)
        else:
            self._kept += data

    def flush(self) -> None:
        if self._kept is None:
            self._shown.flush()

    def close(self) -> None:
        if self._kept is not None:
            screen.show_json({"name": self._name, "text": self._kept.decode(errors="replace")})


def _print_both(manager: Client, options: argparse.Namespace) -> None:
    targets = {"stdout": TrialOutput(sys.stdout.buffer), "stderr": TrialOutput(sys.stderr.buffer)}
    offsets = dict.fromkeys(targets, 0)
    ended = False
    while True:
        gone = None
        for stream, target in targets.items():
            read = _make_reader_of_trial(manager, options.trial, stream)
            try:
                while data := read(offsets[stream]):
                    offsets[stream] += len(data)
                    target.write(data)
            except NotFound as error:  # the other one may be there
                gone = error
            target.flush()
        if gone is not None:
            raise gone
        if ended or not options.follow:
            return
        # After the end, one more round prints what came since the last read.
        ended = _ended(manager, options.trial)
        if not ended:
            time.sleep(POLL_S)


def _folder(options: argparse.Namespace, attempt: int) -> Path:
    entry = access.find(options, read_only=True)
    folder = _find_trial_folder(entry, options.trial)
    # NNI has no attempts, so the folder is the trial's.
    return folder if entry.origin else folder / str(attempt)


def _find_trial_folder(entry: RegistryEntry, trial: str) -> Path:
    if entry.origin is None:
        return entry.directory / "trials" / trial
    return nni_folders.find_trial_folder(entry.origin.directory, trial) or entry.origin.directory / "trials" / trial


def _make_reader_of_trial(manager: Client, trial: str, stream: str) -> Read:
    return lambda offset: manager.output(trial, stream, offset)[0]


class _FollowedLog:
    """A log of this machine, which the manager or a program like logrotate may cut or move while it is followed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        self._start = b""

    def close(self) -> None:
        self._file.close()

    def read(self, offset: int) -> bytes:
        self._file.seek(offset)
        # A log may be larger than the memory.
        return self._file.read(1 << 20)

    def find_place(self, offset: int) -> int:
        """Return where to read on after what has been printed up to `offset`."""
        size = os.fstat(self._file.fileno()).st_size
        if size == offset and self._has_successor():
            self._file.close()
            self._file = self._path.open("rb")
            offset = size = 0
        former, self._start = self._start, os.pread(self._file.fileno(), _START_BYTES, 0)
        if size >= offset:
            return offset
        # The manager's cut keeps the beginning, which has been printed. A rotation leaves only what is new.
        return size if former and self._start.startswith(former) else 0

    def _has_successor(self) -> bool:
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False


def _ended(manager: Client, trial: str) -> bool:
    return manager.trial(trial)["ended"] is not None


def _print(
    options: argparse.Namespace, read: Read, ended: Callable[[], bool], find_place: Callable[[int], int] | None = None
) -> None:
    """Print the requested part, then, with --follow, all further output until `ended` or Ctrl-C.

    `find_place` returns where to read on, by the offset, in a log that may be cut while it is followed.
    """
    out = _Text(options, options.stream)
    offset = 0
    if options.head:
        for line in _first(_lines(read), options.head):
            out.write(line)
        out.close()
        return
    if options.tail:
        last = deque(_counted(_lines(read)), options.tail)
        out.write(b"".join(line for _, line in last))
        offset = last[-1][0] if last else 0
    while True:
        # Asked before the read, or the output between the two would be lost.
        over = ended() if options.follow else True
        offset = find_place(offset) if find_place is not None else offset
        while data := read(offset):
            offset += len(data)
            out.write(data)
        out.flush()
        if over:
            out.close()
            return
        time.sleep(POLL_S)


def _lines(read: Read) -> Iterator[bytes]:
    """Yield lines with their ends; the last one may have none."""
    offset, rest = 0, b""
    while data := read(offset):
        offset += len(data)
        *whole, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def _counted(lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each line with the offset of its end."""
    offset = 0
    for line in lines:
        offset += len(line)
        yield offset, line


def _first(lines: Iterator[bytes], count: int) -> Iterator[bytes]:
    for line, _ in zip(lines, range(count), strict=False):
        yield line
