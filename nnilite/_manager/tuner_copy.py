"""The tuner's first process: a copy of the manager's, made while that has no threads.

A new Python would import again what the manager has imported, which is most of what it does for a short experiment.
Where no copy can be made, where user code would find other modules in it, and after the end of this one, a new Python
is started.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path

from nnilite._side_processes.forked_process import ForkedProcess, can_fork
from nnilite._tuner_host import LONGEST_LINE
from nnilite._tuner_host.tuner_process import TunerPlace, TunerProcess


class TunerCopy:
    """A copy of this process that can hold a tuner. `end`: a file that can be read once the copy has ended."""

    def __init__(
        self, process: ForkedProcess, end: int, link: socket.socket, place: TunerPlace, log_start: int
    ) -> None:
        self._process = process
        self._end = end
        self._link = link
        self._place = place
        self._log_start = log_start

    async def connect(self) -> TunerProcess:
        """Return it as the process of a tuner host. Raises: OSError."""
        reader, writer = await asyncio.open_connection(sock=self._link, limit=LONGEST_LINE)
        return TunerProcess(_AwaitedCopy(self._process, self._end), reader, writer, self._place.log, self._log_start)

    def end(self) -> None:
        """End it instead."""
        self._link.close()
        self._process.kill()
        self._process.wait()
        os.close(self._end)


class _AwaitedCopy:
    """A copy whose end the event loop awaits."""

    def __init__(self, process: ForkedProcess, end: int) -> None:
        self.pid = process.pid
        self._process = process
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._code: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(end, self._note_end)

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    def _note_end(self) -> None:
        self._loop.remove_reader(self._end)
        os.close(self._end)
        self._code.set_result(self._process.wait())


def copy_for_tuner(directory: Path) -> TunerCopy | None:
    """Make the copy for the experiment in a folder. Return None if a new Python has to be started later."""
    if not (can_fork() and hasattr(os, "pidfd_open") and _knows_path()):
        return None
    place = TunerPlace(directory)
    try:
        with contextlib.ExitStack() as if_it_fails, place.open_log() as out:
            ours, theirs = socket.socketpair()
            if_it_fails.enter_context(ours)
            with theirs:
                program = partial(_hold_tuner, place, theirs.fileno())
                process = ForkedProcess(program, stderr=out.fileno(), kept=theirs.fileno())
            if_it_fails.callback(process.wait)
            if_it_fails.callback(process.kill)
            process.stdin.close()
            copy = TunerCopy(process, os.pidfd_open(process.pid), ours, place, out.tell())
            if_it_fails.pop_all()
    except OSError:  # the system says so again to who needs the process, and there it is told
        return None
    return copy


def hides_modules(folders: Sequence[str]) -> bool:
    """Return whether these folders of user code have a module with the name of one that a copy has imported.

    In a new Python they come before all other folders, so that `import yaml` finds the user's own `yaml.py`.
    """
    for name in {name.partition(".")[0] for name in sys.modules}:
        spec = PathFinder.find_spec(name, folders)
        if spec is not None and spec.has_location:  # a folder without `__init__.py` comes after all modules
            return True
    return False


def _hold_tuner(place: TunerPlace, link: int) -> int:
    """Be what `python -P -m nnilite._tuner_host.child` would be."""
    os.dup2(2, 1)
    os.chdir(place.logs)
    os.environ.update(place.environment)
    if _is_script():
        del sys.path[0]
    from nnilite._tuner_host import child

    # Its own registration is the manager's, which would come after the function that ends a copy.
    atexit.register(logging.shutdown)
    sys.modules["__main__"] = child
    sys.argv[:] = [child.__file__, str(link)]
    child.main(sys.argv[1:])
    return 0


def _knows_path() -> bool:
    """Return whether the folders that `python -P` would import from are known.

    Another start puts the current folder before them, and a user's own may be the same.
    """
    return _is_script() or bool(getattr(sys.flags, "safe_path", False))


def _is_script() -> bool:
    """Return whether the folder of this program is the first that it imports from, as for `nnictl`."""
    return sys.path[:1] == [str(Path(sys.argv[0]).resolve().parent)]
