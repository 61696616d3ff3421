"""Starts a trial as a fork of the preloader. Where that cannot be, the trial starts afresh, which says what is wrong.

The preloader prepares the trial and waits for `go`. So when this keeper is not answered in time and starts the trial
itself, it cannot run twice: a fork whose keeper has turned away leaves.
"""

from __future__ import annotations

import array
import os
import socket
import time

from . import process
from .command_start import EndUnknown, StartedCommand
from .python_command import read_python_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple

    from .folder import Folder
    from .python_command import PythonCommand
    from .wake import Wake

_PATIENCE_S = 5.0
_AVOIDED_S = 30.0  # a preloader that has not answered is asked no more for this time
_END_REPORT_S = 1.0  # the preloader tells an end at once
_ANSWER_BYTES = 4096
_EXIT_STATUS = 49  # the field of /proc/PID/stat, from the state on
# What may differ from trial to trial. All else may have been read by a module while it was imported.
_OWN = ("NNI_", "NNILITE_")
_OWN_NAMES = (
    "PWD",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)


class PreloadedStarts:
    """The way to the preloader. `command` and `env` are those with which it was started."""

    def __init__(self, requests: socket.socket, command: PythonCommand, env: Mapping[str, str]) -> None:
        self._requests = requests
        self._command = command
        self._env = env
        self._avoided_until = 0.0

    def start(
        self, command: str, directory: str, env: Mapping[str, str], folder: Folder, wake: Wake
    ) -> Optional[PreloadedCommand]:
        """Start the command, and return it; None if it has to start afresh."""
        if time.monotonic() < self._avoided_until:
            return None
        wanted = read_python_command(command, env)
        if wanted is None or not wanted.has_python_of(self._command):
            return None
        changes = _compare(self._env, {**env, **wanted.variables, "PWD": directory})
        if changes is None:
            return None
        words = [*wanted.python, *wanted.words]
        texts = [directory, folder.stdout, folder.stderr, str(len(wanted.python)), str(len(words)), *words, *changes]
        try:
            answers = self._ask(b"\0".join(map(os.fsencode, texts)))
        except OSError:  # there is no preloader any more, it is too busy, or this is too much for it
            return None
        started = self._await_ready(answers, folder, wake)
        if started is None:
            answers.close()
        return started

    def _ask(self, packet: bytes) -> socket.socket:
        """Send a request, and return the socket for its answers. Raises: OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
                self._requests.sendmsg([packet], files, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        return ours

    def _await_ready(self, answers: socket.socket, folder: Folder, wake: Wake) -> Optional[PreloadedCommand]:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            if not wake.wait(deadline - time.monotonic(), answers.fileno()):
                continue
            kind, _, text = _receive(answers).partition(" ")
            if kind != "ready":
                if text:
                    folder.add_to_log("it starts afresh: {}".format(text))
                return None
            started = PreloadedCommand(int(text), answers)
            try:
                answers.send(b"go", socket.MSG_NOSIGNAL)
            except OSError:  # it was killed
                return None
            return started
        folder.add_to_log("it starts afresh: the preloader has not answered in {:g} s".format(_PATIENCE_S))
        self._avoided_until = time.monotonic() + _AVOIDED_S
        return None


class PreloadedCommand(StartedCommand):
    """A trial that runs as a child of the preloader."""

    def __init__(self, pid: int, answers: socket.socket) -> None:
        super().__init__(pid)
        self._answers = answers
        self._own: Optional[int] = None  # how it has said itself that it would end
        self._gone_since: Optional[float] = None
        self._is_watched = True  # whether there is still somebody who would tell of its end
        self.files: Tuple[int, ...] = (answers.fileno(),)

    def poll(self) -> Optional[int]:
        """Return the exit code if it has ended, negative for a signal. Raises: EndUnknown.

        If the preloader was stopped, the system's table of processes has the code; if it was killed, what the trial
        itself has said is taken.
        """
        while self._is_watched:
            try:
                kind, _, text = _receive(self._answers).partition(" ")
            except BlockingIOError:
                break
            if kind == "ended":
                return int(text)
            if kind == "own":
                self._own = int(text)
            else:
                self._is_watched, self.files = False, ()
        return self._look()

    def _look(self) -> Optional[int]:
        fields = process.stat_of(self.pid)
        if len(fields) > _EXIT_STATUS and fields[19] == self.identity["start"]:
            if fields[0] not in "ZX":
                return None
            status = int(fields[_EXIT_STATUS])
            return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        now = time.monotonic()
        self._gone_since = self._gone_since or now
        if self._is_watched and now - self._gone_since < _END_REPORT_S:
            return None
        if self._own is None:
            raise EndUnknown("the preloader was killed, and with it the exit code of this trial was lost")
        return self._own

    def close(self) -> None:
        """Close the way to the preloader."""
        self._answers.close()


def _receive(answers: socket.socket) -> str:
    """Return an answer; "" if the other end is closed. Raises: BlockingIOError."""
    try:
        return answers.recv(_ANSWER_BYTES).decode("utf-8", "replace")
    except BlockingIOError:
        raise
    except OSError:
        return ""


def _compare(before: Mapping[str, str], wanted: Mapping[str, str]) -> Optional[List[str]]:
    """Return what differs, as the preloader reads it; None if modules may have read it already."""
    found: Dict[str, str] = {name: name for name in before if name not in wanted}
    found.update((name, "{}={}".format(name, value)) for name, value in wanted.items() if before.get(name) != value)
    if not all(name.startswith(_OWN) or name in _OWN_NAMES for name in found):
        return None
    if not all(os.path.isabs(place) for place in wanted.get("PYTHONPATH", "").split(os.pathsep)):
        return None
    return list(found.values())
