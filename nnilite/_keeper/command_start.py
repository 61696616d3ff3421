"""Starts a trial's command, as the leader of a session of its own.

So its process group has its pid, and signals to the keeper's group or terminal do not reach it.

This does what `subprocess` would do. To import that, with all that it imports, takes longer than all of the rest
before the start of a trial, and most of it where an image has no bytecode of the standard library. Where it is loaded
already, as in a fork server, it is used, since it has a way to start a process that costs less than a fork.
"""

from __future__ import annotations

import errno
import os
import sys

from . import process, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _-+=.,:/@%")
_WORDS = """
. : [ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare dirs disown do
done echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help history if in jobs
kill let local logout mapfile popd printf pushd pwd read readarray readonly return select set shift shopt source suspend
test then time times trap true type typeset ulimit umask unalias unset until wait while
"""
SHELL_WORDS = frozenset(_WORDS.split())
_OUT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC  # append, since the cap may cut the file
_MAX_PROBLEM_BYTES = 4096
_MOST_FILES = 1024
# By process id, until they have ended: `subprocess` itself waits for a process that nobody references.
_children: Dict[int, subprocess.Popen[bytes]] = {}
# What the machine lacks. All else that the system refuses (no such program, too long a command) is the command's fault.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ENODEV, errno.ETIMEDOUT)
NO_PROCESS_CURE = "; raise the limit of processes (`ulimit -u`, or pids.max of the control group)"
_MACHINE_ERRORS = (*_DISK_ERRORS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
_NO_THREAD = "can't start new thread"  # the text of a RuntimeError of Python, which has no class for it


class NotStarted(Exception):
    """The command was not started. The text is the sentence for the user."""

    def __init__(self, text: str, by_machine: bool = False) -> None:
        super().__init__(text)
        self.by_machine = by_machine


def is_resource_shortage(error: Exception) -> bool:
    """Return whether a start failed for lack of something on this machine, such as disk space or memory."""
    return isinstance(error, OSError) and error.errno in _MACHINE_ERRORS


def find_cure(error: Exception) -> str:
    """Return the end of a sentence with what to do if no further process or thread may be started; "" for others."""
    at_limit = error.errno == errno.EAGAIN if isinstance(error, OSError) else str(error) == _NO_THREAD
    return NO_PROCESS_CURE if at_limit else ""


class EndUnknown(Exception):
    """The command has ended, and its exit code is lost. The text is the sentence for the user."""


class StartedCommand:
    """A command that runs as a child of this process."""

    files: Tuple[int, ...] = ()
    """What becomes readable when it ends, besides the signal that a child has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.identity = process.identity(pid)

    def poll(self) -> Optional[int]:
        """Return the exit code if it has ended, negative for a signal. Raises: EndUnknown."""
        try:
            code = process.reap(self.pid)
        except ChildProcessError as error:
            raise EndUnknown("its exit code cannot be known: {}".format(error.strerror)) from error
        if code is not None:
            _ended(self.pid, code)
        return code

    def close(self) -> None:
        """Close what belongs to it, after its end."""


def start(command: str, directory: str, env: Mapping[str, str], stdout: str, stderr: str) -> StartedCommand:
    """Start the command by bash, or by sh if there is no bash. Raises: OSError, ValueError.

    Of a command of plain words the shell would only start the program and replace itself by it. So it is started
    without a shell, which takes less time. If that fails, the shell is started after all, and says why.
    """
    words = split_plain_words(command, env)
    if words:
        try:
            # A shell would set this, too.
            return StartedCommand(_spawn(words, directory, {**env, "PWD": directory}, stdout, stderr))
        except (OSError, ValueError):  # a script without `#!`, for example, which a shell can still run
            words = []
    return StartedCommand(_spawn([find_shell(), "-c", command], directory, env, stdout, stderr))


def find_shell() -> str:
    """Return the shell that runs a trial's command."""
    return next((shell for shell in _SHELLS if os.path.exists(shell)), "/bin/sh")


def split_plain_words(command: str, env: Mapping[str, str]) -> List[str]:
    """Return the words of a command that needs no shell; [] if it may need one."""
    words = command.split()
    if not words or not _PLAIN.issuperset(command) or words[0] in SHELL_WORDS or "=" in words[0]:
        return []
    # In these cases a shell does more: it runs a file first, has functions of its own, or its own idea of PATH.
    if not env.get("PATH") or "BASH_ENV" in env or any(name.startswith("BASH_FUNC_") for name in env):
        return []
    return words


def _spawn(words: List[str], directory: str, env: Mapping[str, str], stdout: str, stderr: str) -> int:
    """Start a program and wait until it is sure that it runs. Return its pid. Raises: OSError, ValueError."""
    if "subprocess" in sys.modules:
        return _spawn_by_subprocess(words, directory, env, stdout, stderr)
    programs = [words[0]]
    if "/" not in words[0]:
        programs = [os.path.join(folder, words[0]) for folder in env["PATH"].split(os.pathsep)]
    _keep_inherited_files()
    opened: List[int] = []
    try:
        opened += os.pipe()
        opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        opened += [os.open(path, _OUT_FLAGS, 0o600) for path in (stdout, stderr)]
        pid = os.fork()
        if pid == 0:
            _become(programs, words, directory, env, opened)
        os.close(opened.pop(1))  # the other end, in the new process, is closed by its exec
        problem = os.read(opened[0], _MAX_PROBLEM_BYTES)
    finally:
        for file in opened:
            os.close(file)
    if problem:
        os.waitpid(pid, 0)
        number, _, text = problem.decode("utf-8", "surrogateescape").partition(" ")
        raise OSError(int(number), os.strerror(int(number)), text) if int(number) else ValueError(text)
    return pid


def _spawn_by_subprocess(words: List[str], directory: str, env: Mapping[str, str], stdout: str, stderr: str) -> int:
    import subprocess

    out = os.open(stdout, _OUT_FLAGS, 0o600)
    err = os.open(stderr, _OUT_FLAGS, 0o600)
    try:
        child = subprocess.Popen(
            words,
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    finally:
        os.close(out)
        os.close(err)
    _children[child.pid] = child
    return child.pid


def _ended(pid: int, code: int) -> None:
    """Note that another part of the program has waited for this process."""
    child = _children.pop(pid, None)
    if child is not None:
        child.returncode = code


def _keep_inherited_files() -> None:
    """Keep files that this process has inherited from the command. Its own are marked anyway."""
    for file in _open_files():
        try:
            os.set_inheritable(file, False)
        except OSError:  # it is closed, as that of the list itself
            continue


def _open_files() -> Sequence[int]:
    """Return the open files but the standard streams, or more than these."""
    try:
        return [int(name) for name in os.listdir("/dev/fd") if int(name) > 2]
    except OSError:  # no such folder, or no file left to read it
        return range(3, _MOST_FILES)


def _become(
    programs: Sequence[str], words: List[str], directory: str, env: Mapping[str, str], opened: Sequence[int]
) -> NoReturn:
    """Run, in the new process, the first of these programs that can be run, or report what is wrong and end."""
    _, problem, *streams = opened
    number, text = 0, ""
    try:
        os.setsid()
        os.chdir(directory)
        for stream, file in enumerate(streams):
            os.dup2(file, stream)
        for ignored in (signals.SIGPIPE, signals.SIGXFSZ):  # by Python, and exec would keep that
            signals.signal(ignored, signals.SIG_DFL)
        for program in programs:
            try:
                os.execve(program, words, env)
            except OSError as error:
                # The programs of further folders are tried, too, and "not found" says less than any other error.
                if not number or not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                    number, text = error.errno or 0, str(error.filename or program)
    except OSError as error:
        number, text = error.errno or 0, str(error.filename or directory)
    except ValueError as error:  # a zero byte, for example
        number, text = 0, str(error)
    finally:
        os.write(problem, "{} {}".format(number, text).encode("utf-8", "surrogateescape")[:_MAX_PROBLEM_BYTES])
        os._exit(127)
