"""How a fork of the preloader ends: as a Python does, without the cost of all that it has not imported itself.

It runs in the Python of the trials, as `preload_program` does, whose text follows this one.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import FrozenSet, List


class _Mark:
    """One of the names of `__main__`, and kept by nothing else: it lives as long as these names are in use."""


class Preloaded:
    """What forks ask of the preloaded modules.

    It is looked up once, in the preloader: a fork that touches all modules copies the memory that they are in, which
    with scikit-learn takes 15 ms.
    """

    def __init__(self, bare: FrozenSet[str]) -> None:
        main = sys.modules["__main__"]
        self.names_of_main = [name for name, module in sys.modules.items() if module is main]
        self.replaceable = frozenset(sys.modules).difference(bare, sys.builtin_module_names)
        self._names = frozenset(sys.modules)
        self._last = next(reversed(sys.modules))

    def list_new(self) -> List[str]:
        """Return the names of the modules that this process has imported since, the first of them first."""
        new: List[str] = []
        for name in reversed(sys.modules):
            if name == self._last:
                break
            new.insert(0, name)
        if len(sys.modules) == len(self._names) + len(new):
            return new
        return [name for name in sys.modules if name not in self._names]  # without those that were removed


class QuickExit:
    """Ends the process as Python does, but leaves the preloaded modules as they are.

    Python takes all modules apart at its end. In a fork this copies the memory that it shares with the preloader: 5 ms
    of processor time without any module, 90 ms with scikit-learn.
    """

    def __init__(self) -> None:
        try:
            import ctypes
        except ImportError:  # this Python was built without it
            self._exit = None
        else:
            # That of C runs what libraries have registered, and flushes their streams. It keeps the interpreter's lock.
            self._exit = ctypes.PyDLL(None).exit

    def leave(self, code: int, preloaded: Preloaded) -> None:
        """End the process. Return if that is left to the interpreter, as when output cannot be written.

        So it is while a thread runs that the program does not wait for: it may be at a file that takes nothing more,
        and would not let it be flushed.
        """
        if self._exit is None:
            return
        try:
            if "threading" in sys.modules:
                sys.modules["threading"]._shutdown()
            _run_exit_functions()
            if _thread._count():
                return
            _flush_files()
            _delete_what_is_new(preloaded)
            for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
                if stream is not None and not stream.closed:
                    stream.flush()
        except BaseException:  # noqa: BLE001  whatever it is, the interpreter meets it again and says so
            return
        self._exit(code)


def _delete_what_is_new(preloaded: Preloaded) -> None:
    """Delete what the program has made. Its objects may have something to do then, with names of its modules."""
    vars(sys.modules["__main__"])[""] = mark = _Mark()
    weak = sys.modules["_weakref"].ref(mark)
    for name in [*preloaded.names_of_main, *preloaded.list_new()]:
        del sys.modules[name]
    del mark
    gc.collect()
    mark = weak()
    if mark is not None:  # something still has a function of the program, such as the handler of a signal
        for names in gc.get_referrers(mark):
            if isinstance(names, dict):
                for name in reversed([name for name in names if name != "__builtins__"]):
                    names[name] = None
        gc.collect()


def _run_exit_functions() -> None:
    try:
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001  before Python 3.10 it raises again what it has printed
        return


def _flush_files() -> None:
    """Flush what was not closed. What remains may stay, and in a cycle a file may be deleted before its buffer."""
    kind = sys.modules["_io"]._IOBase
    for thing in gc.get_objects():
        if issubclass(type(thing), kind):
            try:
                if not thing.closed and thing.writable():
                    thing.flush()
            except Exception:  # noqa: BLE001  nothing is said of it at the end of Python, either
                continue
