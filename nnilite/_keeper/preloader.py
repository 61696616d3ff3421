"""The fork server's end of the preloader: starts it, notices when it is ready, and starts it again if it was killed.

Keepers inherit the socket on which it takes requests. The fork server has both ends of it, so requests wait for a new
preloader while that imports.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time

from . import sdk_folder, trial_environment
from .preloaded_start import PreloadedStarts
from .python_command import describe_other_command, read_python_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional

_STUB = (
    "i=dict(globals());import sys;b=frozenset(sys.modules);n={'__name__':'nnilite_preloader'};"
    "[exec(compile(sys.argv.pop(1),'<nnilite preloader>','exec'),n) for _ in (1,2)];n['main'](i,b)"
)
_ROOM = {"NNILITE_JOB": 300, "NNI_SYS_DIR": 4200, "NNI_EXP_ID": 300}  # how long these may be, for `_ProcessTexts`
_SHORT_LIFE_S = 60.0
_MOST_SHORT_LIVES = 3
_ANSWER_BYTES = 65536


class NotPreloaded(ValueError):
    """Modules cannot be preloaded. The text is one sentence."""


class Preloader:
    """A preloader, which runs or is about to. Raises: NotPreloaded if there can be none for this command."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        # The SDK is imported in any case.
        self._modules = [str(module) for module in order["modules"] if module != "nnilite"]
        self._code = str(order["code"])
        sdk = sdk_folder.shared_place()
        env = trial_environment.environment_of_all(sdk)
        command = read_python_command(str(order["command"]), env)
        if command is None:
            raise NotPreloaded(describe_other_command(str(order["command"])))
        if not sdk or not os.path.exists("/proc/self/environ"):
            raise NotPreloaded("this works only on Linux, and in a folder without a colon in its name")
        self._command = command
        self._env = {**env, **command.variables}
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.starts: Optional[PreloadedStarts] = PreloadedStarts(ours, command, self._env)
        self._ours = ours
        self._lifeline: Optional[socket.socket] = None
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._began = 0.0
        self._was_ready = False
        self._short_lives = 0

    @property
    def files(self) -> List[int]:
        """What becomes readable when the preloader says something."""
        return [] if self._lifeline is None else [self._lifeline.fileno()]

    def start(self) -> None:
        """Start the preloader. Raises: NotPreloaded, and OSError, after which it does not run: call `close`."""
        loader: Any = globals()["__loader__"]
        places = (os.path.join(os.path.dirname(__file__), name) for name in ("preload_end.py", "preload_program.py"))
        texts = [loader.get_data(place).decode("ascii") for place in places]
        self._lifeline, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lifeline.setblocking(False)
        files = (its.fileno(), self._theirs.fileno())
        words = [*self._command.python, "-c", _STUB, *texts, *map(str, files), self._code, *self._modules]
        self._began = time.monotonic()
        try:
            # Its output is an ordinary file, as that of trials, so that Python makes the same streams for it.
            self._child = subprocess.Popen(
                words,
                cwd=self._code,
                env={**self._env, **{name: "-" * size for name, size in _ROOM.items()}},
                stdin=subprocess.DEVNULL,
                stdout=2,
                stderr=2,
                pass_fds=files,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self.close()
            raise NotPreloaded("{} cannot be started: {}".format(self._command.python[0], error)) from error
        finally:
            its.close()

    def poll_event(self) -> Optional[Dict[str, Any]]:
        """Return what it says, as an event of the fork server; None if that is nothing new."""
        try:
            data = b"" if self._lifeline is None else self._lifeline.recv(_ANSWER_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if data == b"ready":
            self._was_ready = True
            return {"event": "preloaded", "memory": _resident_bytes(0 if self._child is None else self._child.pid)}
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None
        if not data:
            return None
        self.close()
        kind, _, text = data.decode("utf-8", "replace").partition(" ")
        return {"event": "not preloaded", "message": text, "missing": kind == "missing"}

    def note_end(self, pid: int) -> Optional[Dict[str, Any]]:
        """Start the preloader again if this process was it. Return the event if it cannot be started again."""
        if self._child is None or pid != self._child.pid:
            return None
        self._child.returncode = 0  # it was waited for
        self._child = None
        event = self.poll_event()
        if self.starts is None:
            return event
        self._short_lives = self._short_lives + 1 if time.monotonic() - self._began < _SHORT_LIFE_S else 0
        try:
            if not self._was_ready:
                text = "Python ended while it imported {}; take what ended it out of `preload`"
                raise NotPreloaded(text.format(", ".join(self._modules)))
            if self._short_lives > _MOST_SHORT_LIVES:
                raise NotPreloaded("the preloader was killed again and again")
            self.start()
        except (NotPreloaded, OSError, ImportError) as error:  # the keeper's file may have been swept up or replaced
            self.close()
            return {"event": "not preloaded", "message": str(error)}
        return None

    def close(self) -> None:
        """Let the preloader end when its trials have ended. Keepers notice its end."""
        self.starts = None
        self.leave()
        self._ours.close()

    def leave(self) -> None:
        """Close what only the fork server needs, in a keeper."""
        self._theirs.close()
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None


def _resident_bytes(pid: int) -> int:
    try:
        with open("/proc/{}/statm".format(pid), encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
