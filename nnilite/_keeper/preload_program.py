"""The preloader: a Python that has imported modules once. Trials start as its forks.

`preloader` starts it with the Python of the trials, gives it this text with that of `preload_end`, and no other file of
nnilite, and reads on the lifeline what it says: `ready`, or `missing` or `refused` and why. The end of the lifeline is
the end of the preloader, once its last trial has ended.

Each request is one packet (see `preloaded_start`) with a socket for the answers, which are packets, too:

    fork       ready PID | refused WHY      all is prepared; nothing of the trial has run yet
    keeper     go                           without this, as when the keeper has given up, the fork leaves
    fork       own CODE                     how it is about to end, in case that the preloader is killed
    preloader  ended CODE                   how it has ended, negative for a signal

A fork becomes what a new Python would be. It leaves all frames of this program but the first ones, which its
tracebacks do not show. A program that fails is left to the interpreter, which ends as it always does. After any other,
the same is done but for the preloaded modules, which stay as they are (`QuickExit`): threads, `atexit`, what the
program has made, output, exit code.

Python 3.8 and the standard library alone, and of this no more than the preloader needs.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Dict, FrozenSet, List, Optional, Tuple

    from .preload_end import Preloaded, QuickExit  # its text runs before this one, with the same names

_NAME = "<nnilite preloader>"  # name of this text in tracebacks
_HIGH = 200  # files of ours have numbers from here, where no trial expects its own
_MOST_BYTES = 400_000
_MARKS = ("NNILITE_JOB", "NNI_SYS_DIR", "NNI_EXP_ID")
_GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")
_INSTALLED = ("site-packages", "dist-packages")


class ForkRefused(Exception):
    """Something cannot be done here. The text is a sentence, without a full stop."""


class _ModuleMissing(ForkRefused):
    """Something is not installed here."""


class _Request:
    """What is to run."""

    def __init__(self, packet: bytes) -> None:
        self.directory, self.stdout, self.stderr, python, words, *rest = map(os.fsdecode, packet.split(b"\0"))
        self.python = rest[: int(python)]
        self.words = rest[int(python) : int(words)]
        self.changes = [change.partition("=") for change in rest[int(words) :]]


class _OwnEnd:
    """Reports to the keeper how this trial is about to end."""

    def __init__(self) -> None:
        self.code = 0
        self.answers: Optional[socket.socket] = None
        self._pid = 0

    def begin(self, answers: socket.socket) -> None:
        self.answers, self._pid = answers, os.getpid()
        os.register_at_fork(after_in_child=self.leave)

    def leave(self) -> None:
        if self.answers is not None:
            self.answers.close()
            self.answers = None

    def tell(self) -> None:
        if self.answers is not None and os.getpid() == self._pid:
            _send(self.answers, "own {}".format(self.code))


class _ProcessTexts:
    """What other programs read of this process: its command line and environment, as they were given to it.

    Keepers find the processes of a trial by its environment, and services those that use a GPU. They are changed in
    their place, if the system allows.
    """

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        self._line, line_end, environment, _ = (int(field) for field in fields[45:49])
        self._line_size = self._shown = line_end - self._line
        self._places: Dict[str, Tuple[int, int]] = {}
        with open("/proc/self/environ", "rb") as file:
            for entry in file.read().split(b"\0"):
                name = entry.partition(b"=")[0].decode("ascii", "replace")
                if name in _MARKS:
                    self._places[name] = (environment, len(entry))
                environment += len(entry) + 1

    def show(self, words: List[str], marks: Dict[str, str]) -> None:
        """Show this command line and these variables. Raises: OSError, ForkRefused."""
        line = b"\0".join(map(os.fsencode, words))[: self._line_size - 1]
        memory = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            # The first time, the text before it is longer: all that this process was started with.
            os.pwrite(memory, line.ljust(self._shown, b"\0"), self._line)
            self._shown = len(line)
            for name, value in marks.items():
                place, size = self._places[name]
                entry = os.fsencode("{}={}".format(name, value))
                if len(entry) > size:
                    raise ForkRefused("{} is too long".format(name))
                os.pwrite(memory, entry.ljust(size, b"\0"), place)
        finally:
            os.close(memory)


def main(initial: Dict[str, Any], bare: FrozenSet[str]) -> None:
    """Preload, and serve. Return in the forks only, and at the end of their trials.

    `initial` is what `__main__` has at its start, `bare` what is imported in any Python.
    """
    _, lifeline, requests, code, *modules = sys.argv
    life = _moved(int(lifeline), _HIGH)
    end = _OwnEnd()
    atexit.register(end.tell)  # the first that is registered is called last
    for name in _MARKS:
        os.environ.pop(name, None)
    if sys.path and not sys.path[0]:
        del sys.path[0]
    try:
        texts = _show_preloader(modules)
        _check_processes("sitecustomize")  # or whatever else runs at the start of Python here
        for module in modules:
            _preload(module, bare, code)
        _import_sdk()
    except ForkRefused as refusal:
        missing = isinstance(refusal, _ModuleMissing)
        sentence = "missing {}; install what is missing, or" if missing else "refused {};"
        _send(life, (sentence + " take it out of `preload`").format(refusal))
        sys.stderr.flush()
        os._exit(1)
    _stop_ignoring()
    leaving = QuickExit()
    preloaded = Preloaded(bare)
    _send(life, "ready")
    request = _TrialForks(life, _moved(int(requests), _HIGH + 1), end).serve(texts, preloaded)
    _run(request, preloaded, initial, end)
    leaving.leave(end.code, preloaded)
    raise SystemExit(end.code)


def _show_preloader(modules: List[str]) -> _ProcessTexts:
    """Show others what this process is. Raises: ForkRefused if this system does not let it."""
    try:
        texts = _ProcessTexts()
        texts.show(["nnilite preloader:", *modules], {})
    except OSError as error:
        raise ForkRefused(
            "the field has no effect here, where a process cannot write to its memory ({})".format(error)
        ) from error
    return texts


def _moved(file: int, number: int) -> socket.socket:
    os.dup2(file, number, inheritable=False)
    os.close(file)
    return socket.socket(fileno=number)


def _send(to: socket.socket, text: str) -> None:
    try:
        to.send(text.encode("utf-8", "surrogateescape"), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:  # nobody is interested any more
        return


# importing


def _preload(module: str, bare: FrozenSet[str], code: str) -> None:
    """Import a module. Raises: ForkRefused if it cannot be, or forks could not use it as if they had imported it."""
    try:
        __import__(module)
    except BaseException as error:  # noqa: BLE001  a module may raise anything, and call sys.exit
        import traceback

        traceback.print_exc()
        text = "{} cannot be imported by {}: {}: {}"
        kind = _ModuleMissing if isinstance(error, ImportError) else ForkRefused
        raise kind(text.format(module, sys.executable, type(error).__name__, error)) from None
    place = getattr(sys.modules[module], "__file__", None)
    if place and not _is_installed(place):
        text = "{} is not an installed module but lies in {}, and trials would not see its changes"
        raise ForkRefused(text.format(module, os.path.dirname(place)))
    for name in sorted(set(sys.modules) - bare):
        place = getattr(sys.modules[name], "__file__", None)
        if place and place.startswith(code + os.sep) and not _is_installed(place):
            raise ForkRefused("{} imports {} from your code, and trials would not see its changes".format(module, name))
    _check_processes(module)


def _is_installed(place: str) -> bool:
    library = os.path.dirname(os.path.abspath(os.__file__))
    return place.startswith(library + os.sep) or any(part in _INSTALLED for part in place.split(os.sep))


def _import_sdk() -> None:
    """Import what most trials do. It has no effect before it is used."""
    try:
        __import__("nnilite")
    except ImportError:  # Python was told to ignore PYTHONPATH
        return


def _check_processes(module: str) -> None:
    """Raise ForkRefused if an import has left what a fork cannot have."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        pass
    else:
        raise ForkRefused("{} has started a process while it was imported".format(module))
    # Those that take care of forks themselves, such as OpenBLAS, end their threads now, and start them when needed.
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        text = "{} has started {} while it was imported, which a fork does not have"
        raise ForkRefused(text.format(module, "a thread" if threads == 2 else "{} threads".format(threads - 1)))
    for file in os.listdir("/proc/self/fd"):
        try:
            device = os.readlink("/proc/self/fd/" + file)
        except OSError:  # the descriptor of the listing itself
            continue
        if device.startswith(_GPU_DEVICES):
            text = "{} has opened {} while it was imported, when no trial has got its GPUs"
            raise ForkRefused(text.format(module, device))


# serving


class _TrialForks:
    """Forks a trial for each request, and reports how it has ended."""

    def __init__(self, life: socket.socket, requests: socket.socket, end: _OwnEnd) -> None:
        self._life = life
        self._requests = requests
        self._end = end
        self._packet = b""
        self._trials: Dict[int, socket.socket] = {}

    def serve(self, texts: _ProcessTexts, preloaded: Preloaded) -> _Request:
        """Serve to the end of the lifeline. Return only in a fork, when its trial may run."""
        wake, waker = _make_pipe()
        # As in `_cpython`, which this text cannot import: `signal` makes enumerations, for ten times as long.
        in_c = sys.modules.get("_signal", signal)
        before = in_c.signal(signal.SIGCHLD, lambda number, frame: None)
        in_c.set_wakeup_fd(waker, warn_on_full_buffer=False)
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        gc.freeze()  # no fork touches these objects only to look for garbage
        files = select.poll()
        for file in (wake, self._life.fileno(), self._requests.fileno()):
            files.register(file, select.POLLIN)
        alive = True
        while alive or self._trials:
            ready = [file for file, _ in files.poll()]
            if wake in ready:
                os.read(wake, 4096)
            self._reap()
            self._packet = b""
            if alive and self._requests.fileno() in ready:
                answers = self._take()
                if answers is not None:
                    in_c.set_wakeup_fd(-1)
                    in_c.signal(signal.SIGCHLD, in_c.SIG_DFL if before is None else before)
                    os.close(wake)
                    os.close(waker)
                    return self._prepare(answers, texts, preloaded)
            if alive and self._life.fileno() in ready and not self._packet:  # all requests were taken
                alive = False
                files.unregister(self._life.fileno())
                files.unregister(self._requests.fileno())
                self._requests.close()
        os._exit(0)

    def _take(self) -> Optional[socket.socket]:
        """Take a request. Return a socket in the fork, None in this process."""
        size = socket.CMSG_SPACE(4)
        flags = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
        try:
            self._packet, more, _, _ = self._requests.recvmsg(_MOST_BYTES, size, flags)
        except OSError:  # there is none, or there will be none any more
            return None
        for _, kind, data in more:
            if kind == socket.SCM_RIGHTS:
                answers = socket.socket(fileno=int.from_bytes(data[:4], sys.byteorder))
                try:
                    pid = os.fork()
                except OSError as error:
                    _send(answers, "refused no process can be forked: {}".format(error.strerror))
                    continue
                if pid == 0:
                    return answers
                self._trials[pid] = answers
        return None

    def _reap(self) -> None:
        while self._trials:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            answers = self._trials.pop(pid, None)
            if answers is not None:
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                _send(answers, "ended {}".format(code))
                answers.close()

    def _prepare(self, answers: socket.socket, texts: _ProcessTexts, preloaded: Preloaded) -> _Request:
        """Become a process of its own, with all that the trial needs. Return when it may run."""
        for other in self._trials.values():
            other.close()
        self._life.close()
        self._requests.close()
        try:
            answers = _moved(answers.detach(), _HIGH)
            os.setsid()
            request = _Request(self._packet)
            _enter(request, texts)
            _prepare_program(request, preloaded)
        except (ForkRefused, OSError, ValueError) as error:
            _send(answers, "refused {}".format(error))
            os._exit(0)
        _send(answers, "ready {}".format(os.getpid()))
        if answers.recv(16) != b"go":
            os._exit(0)
        self._end.begin(answers)
        return request


def _make_pipe() -> Tuple[int, int]:
    """Make a pipe that never blocks, with numbers above those of trials."""
    moved = []
    for number, file in enumerate(os.pipe(), _HIGH + 2):
        moved.append(os.dup2(file, number, inheritable=False))
        os.set_blocking(number, False)
        os.close(file)
    return moved[0], moved[1]


# becoming a trial


def _stop_ignoring() -> None:
    """Let signals that a keeper handles end this process, as after its `exec`, also below `nohup`."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _enter(request: _Request, texts: _ProcessTexts) -> None:
    """Take the trial's folder, streams and environment. Raises: OSError, ForkRefused."""
    os.chdir(request.directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    for stream, path in ((1, request.stdout), (2, request.stderr)):
        file = os.open(path, flags, 0o600)
        os.dup2(file, stream)
        os.close(file)
    for name, given, value in request.changes:
        if given:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)
    texts.show([*request.python, *request.words], {name: os.environ.get(name, "") for name in _MARKS})


def _prepare_program(request: _Request, preloaded: Preloaded) -> None:
    """Set `sys.argv` and `sys.path` for the program. Raises: OSError, ForkRefused if a new Python has to run it."""
    first = request.words[0]
    place = os.getcwd() if first == "-m" else os.path.dirname(os.path.realpath(first))
    if first != "-m":
        with open(first, "rb") as file:
            file.read(1)
    safe = getattr(sys.flags, "safe_path", bool(sys.flags.isolated))
    if not safe:
        for entry in os.listdir(place):
            name, _, kind = entry.partition(".")
            if name in preloaded.replaceable and _is_importable(os.path.join(place, entry), kind):
                raise ForkRefused("{} takes the place of a preloaded module".format(entry))
        sys.path.insert(0, place)
    sys.argv = [first, *request.words[2 if first == "-m" else 1 :]]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = [*request.python, *request.words]


def _is_importable(path: str, kind: str) -> bool:
    return os.path.exists(os.path.join(path, "__init__.py")) if not kind else kind.split(".")[-1] in ("py", "so", "pyc")


def _forget_preloader() -> None:
    """Replace what libraries have kept of the process in which they were imported."""
    for generator in (sys.modules.get("numpy.random"), getattr(sys.modules.get("torch"), "default_generator", None)):
        if generator is not None:
            generator.seed()  # with random numbers of the system; `random` does this itself
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
        process._current_process = type(process.current_process())()  # type: ignore[attr-defined]


def _run(request: _Request, preloaded: Preloaded, initial: Dict[str, Any], end: _OwnEnd) -> None:
    """Run the program as `__main__`. What it raises passes on to the interpreter, which ends as it does."""
    _forget_preloader()
    names = _renew_main(preloaded, initial)
    try:
        if request.words[0] == "-m":
            import runpy

            runpy._run_module_as_main(request.words[1])  # type: ignore[attr-defined]
        else:
            _run_script(request.words[0], names)
    except SystemExit as left:
        end.code = left.code & 255 if isinstance(left.code, int) else 0 if left.code is None else 1
        if left.code is not None and not isinstance(left.code, int):  # the interpreter prints it
            raise
    except BaseException as error:
        end.code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        _show_without_preloader()
        raise


def _renew_main(preloaded: Preloaded, initial: Dict[str, Any]) -> Dict[str, Any]:
    """Make a new `__main__`, since what was frozen is never found to be garbage. Return its names."""
    new = type(sys)("__main__")
    new.__dict__.update(initial)
    for name in preloaded.names_of_main:  # multiprocessing has another name for it
        sys.modules[name] = new
    return new.__dict__


def _run_script(path: str, names: Dict[str, Any]) -> None:
    if sys.version_info >= (3, 9) and not os.path.isabs(path):
        path = os.getcwd() + "/" + path
    loader = sys.modules["_frozen_importlib_external"].SourceFileLoader
    names.update(__file__=path, __cached__=None, __loader__=loader("__main__", path))
    with open(path, "rb") as file:
        text = file.read()
    try:
        exec(compile(text, path, "exec", dont_inherit=True), names)
    finally:
        names.pop("__file__", None)
        names.pop("__cached__", None)


def _show_without_preloader() -> None:
    """Let the interpreter show the exception without the frames of this program, as the program itself has set that."""
    show = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename in (_NAME, "<string>"):
            trace = trace.tb_next
        show(kind, error.with_traceback(trace), trace)

    sys.excepthook = hook
