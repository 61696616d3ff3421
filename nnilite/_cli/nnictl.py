"""The command line as a whole: the list of commands, and the answer to errors.

Exit codes: 0 done, 1 an error (one sentence on stderr), 2 the command line is wrong, 3 no such experiment, trial or
file, 4 not possible in the present state, 5 the manager or a platform does not answer, 6 the experiment that was
waited for ended in ERROR, 7 it ended well, but trackers or webhooks have not got everything, 8 it ended well, but every
trial that ended by itself has failed, 130 interrupted (Ctrl-C), 143 by SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NoReturn

from nnilite._cli import ctrl_c
from nnilite._cli.command_line import USAGE, Parser, nearest, printable
from nnilite.errors import ConfigError, Conflict, NniliteError, NotFound, ServiceError, explain_os_error

DONE, ERROR, NOT_FOUND, CONFLICT, UNREACHABLE, FAILED, OWING, NONE_SUCCEEDED = 0, 1, 3, 4, 5, 6, 7, 8

COMMANDS = {
    "create": "start an experiment from a configuration file",
    "resume": "resume a stopped experiment",
    "view": "open a stopped experiment read-only",
    "stop": "stop experiments",
    "update": "change a running experiment: search space, concurrency, limits",
    "experiment": "list, show, export, import, delete, save and load experiments",
    "drill": "interrupt running trials as spot nodes do, and report what was lost",
    "trial": "list, show, tag, kill, scale, rerun, add and download trials",
    "log": "read the logs of an experiment and the output of its trials",
    "top": "watch the running experiments",
    "config": "show an experiment's configuration or the schema, and convert other programs' files",
    "ui": "serve one page for all experiments",
    "webui": "print the address of an experiment's web page",
    "doctor": "find out why experiments do not work here",
    "verify": "check that a finished experiment is complete and consistent",
    "tensorboard": "open TensorBoard on an experiment",
    "platform": "list the installed training services",
    "worker": "offer this machine to a pool of workers, and list who has joined",
    "algo": "list, show and register tuners and assessors",
    "completion": "print a script that completes commands in bash, zsh or fish",
}

_INSTEAD = {
    "hello": "NNI's example is not included; `nnictl create --config FILE` starts an experiment of your own.",
    "jupyter-extension": "`nnictl webui url` prints the address of the web page.",
    "package": "plugins are Python packages: `pip install` them, and `nnictl algo list` shows them.",
    "ss_gen": "`nnictl config expand` writes the search space of a program with NNI's annotations.",
    "trainingservice": "plugins are Python packages: `pip install` them, and `nnictl platform list` shows them.",
    **{
        word: f"did you mean 'experiment {word}'?"
        for word in ("delete", "export", "import", "list", "load", "save", "show", "status")
    },
    **dict.fromkeys(("start", "run", "launch", "submit", "new"), "did you mean 'create'?"),
    **dict.fromkeys(("validate", "check", "test"), "`nnictl create --config FILE --dry-run` checks a config."),
    **{word: f"did you mean 'trial {word}'?" for word in ("add", "download", "kill", "ls", "rerun", "scale")},
    **dict.fromkeys(("rm", "remove"), "did you mean 'experiment delete'?"),
    "ps": "did you mean 'experiment list'?",
    "best": "`nnictl trial ls --head 1` shows the best trial.",
    "init": "a configuration is a YAML file that you write; `nnictl create FILE` starts it.",
    "version": "did you mean --version?",
    **dict.fromkeys(("dashboard", "server", "serve", "web", "page"), "`nnictl ui` serves a page of all experiments."),
    **dict.fromkeys(("cancel", "pause"), "`nnictl stop` ends an experiment, and `nnictl resume` continues it."),
}
"""What to use instead of NNI's commands, and of incomplete commands."""

_EPILOG = """\
commands:
{commands}

`nnictl COMMAND --help` shows more. The start of an experiment's id is enough; without an id, the command means the
only running experiment.

exit codes:
  0 done                     4 not possible in the present state
  1 an error                 5 the manager or a platform does not answer
  2 wrong command line       6 the experiment ended in ERROR (--foreground)
  3 not found                7 a tracker or webhook lacks results (--foreground)
                           8 every trial failed (--foreground)
                         130 interrupted; 143 ended by SIGTERM
"""


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line. Return the exit code. `help COMMAND` is what `COMMAND --help` is."""
    if arguments and arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    name = next((word for word in arguments if not word.startswith("-")), None)
    with ctrl_c.ImmediateExit(), _writing_help():
        try:
            parser = _make_parser(name)
        except NniliteError as error:  # a command whose arguments are a plugin's, and the plugin lacks something
            print_error(str(error))
            return exit_code(error)
        if name is not None and name not in COMMANDS:
            parser.error(_unknown(name))
        options = parser.parse_args(arguments)
    if "command" not in options:
        parser.print_help(sys.stdout if not arguments else sys.stderr)
        return DONE if not arguments else USAGE
    if not options.debug:
        sys.excepthook = _report_unexpected
    return _carry_out(options)


def _make_parser(name: str | None) -> Parser:
    """Return the parser of all commands, in which only the named command has its options."""
    width = max(map(len, COMMANDS)) + 2
    commands = "\n".join(f"  {key:{width}}{text}" for key, text in COMMANDS.items())
    parser = Parser(
        prog="nnictl",
        description="Run experiments that search for the best parameters.",
        usage="nnictl [-v] [--debug] COMMAND ...",
        epilog=_EPILOG.format(commands=commands),
    )
    parser.add_argument("-v", "--version", action=_Version)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    # Importing all commands takes longer than most of them run.
    if name in COMMANDS:
        module = importlib.import_module(f"nnilite._cli.{name}")
        groups = parser.add_subparsers(prog="nnictl", help=argparse.SUPPRESS, parser_class=Parser)
        description = textwrap.dedent(module.__doc__ or "")
        module.add(groups.add_parser(name, help=COMMANDS[name], description=description))
    return parser


def _unknown(name: str) -> str:
    if name in _INSTEAD:
        return f"There is no command '{name}'; {_INSTEAD[name]}"
    near = nearest(name, COMMANDS)
    hint = f"did you mean '{near}'?" if near else f"there are {', '.join(COMMANDS)}."
    return f"There is no command '{name}'; {hint}"


class _Version(argparse.Action):
    """Prints the version, which is only read then."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from nnilite._version import __version__

        print(__version__)
        parser.exit(DONE)


@contextlib.contextmanager
def _writing_help() -> Iterator[None]:
    """Read arguments inside, which may print the help or the version. Raises: SystemExit if their reader has gone."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        sys.exit(DONE)
    except OSError as error:
        print_error(_sentence(error))
        sys.exit(ERROR)


def _forget_output() -> None:
    """Handle that the reader, `head` for example, has seen enough.

    Python flushes standard output at its end, and would complain about the broken pipe.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _carry_out(options: argparse.Namespace) -> int:
    try:
        code = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return DONE
    except KeyboardInterrupt:
        return ctrl_c.tell("Interrupted.")
    except (NniliteError, OSError) as error:
        if options.debug:
            raise
        print_error(_sentence(error))
        return exit_code(error)
    return int(code or DONE)


def exit_code(error: Exception) -> int:
    """Return the exit code that shows scripts the kind of the error."""
    from nnilite._running.manager_connection import Unreachable

    if isinstance(error, (Unreachable, ServiceError)):
        return UNREACHABLE
    if isinstance(error, ConfigError):
        return ERROR
    if isinstance(error, NotFound):
        return NOT_FOUND
    return CONFLICT if isinstance(error, Conflict) else ERROR


def print_error(sentence: str) -> None:
    """Print an error on stderr."""
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    print(f"{red}ERROR:{plain} {printable(sentence)}", file=sys.stderr)


def warn(sentence: str) -> None:
    """Print a warning on stderr, where it is never mistaken for a result."""
    print(f"WARNING: {printable(sentence)}", file=sys.stderr)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return explain_os_error(error)
    return str(error) or type(error).__name__


def _report_unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, SystemExit):  # Python reports an ordinary end, too, under PYTHONINSPECT
        return
    from nnilite._keeper.command_start import find_cure

    cure = find_cure(error) if isinstance(error, Exception) else ""
    if cure:
        print_error(f"This command cannot start a thread or a process: {error}{cure}")
        return
    if isinstance(error, MemoryError):
        print_error(
            "There is not enough memory for this command; end other programs, or raise its limit (`ulimit -v`)."
        )
        return
    print_error(f"This is a bug in nnilite: {kind.__name__}: {error}. `nnictl --debug ...` shows where.")
