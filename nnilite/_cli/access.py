"""Finds the experiment that a command is about, and its manager.

Every command that only reads works on stopped experiments, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnilite import _registry
from nnilite._registry import RegistryEntry
from nnilite._running import managers
from nnilite._running.launch import ManagerOptions
from nnilite._running.manager_client import Client
from nnilite._running.reading import opened
from nnilite.errors import ConfigError, NotFound
from nnilite.units import parse_size_bytes


def experiment_argument(parser: argparse.ArgumentParser) -> None:
    """Add the optional id of an experiment."""
    parser.add_argument("id", nargs="?", help="id of the experiment, or its start; default: the only one that runs")


def json_argument(parser: argparse.ArgumentParser, text: str = "print JSON") -> None:
    """Add --json, which every command has."""
    parser.add_argument("--json", action="store_true", help=text)


def state(text: str) -> str:
    """The state of a trial from the command line, in capitals or not."""
    return text.upper()


def manager_arguments(parser: argparse.ArgumentParser, first_port: int = 8080) -> None:
    """Add the options on where a new server listens."""
    parser.add_argument("-p", "--port", type=port, help=f"port (default: {first_port}, or the next free one; 0: any)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument(
        "-u",
        "--url-prefix",
        "--url_prefix",
        default="",
        metavar="PATH",
        help="path under which the web page and REST are served",
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate (PEM), to serve https")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="private key of the certificate (PEM)")
    parser.add_argument(
        "-d", "--debug", action="store_true", default=argparse.SUPPRESS, help="log in detail; show tracebacks"
    )


def port(text: str) -> int:
    """A port number from the command line."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: ports go from 0 to 65535")
    return int(text)


def positive(text: str) -> int:
    """A count of at least one from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def amount(text: str) -> float:
    """An amount of money from the command line."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not an amount of at least 0")
    return number


def size(text: str) -> int:
    """A size in bytes, such as 200gb, from the command line."""
    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def manager_options(options: argparse.Namespace) -> ManagerOptions:
    """The options of a new manager. Raises: ConfigError if a half of the TLS pair is not set, or does not exist."""
    certificate, key = options.tls_cert, options.tls_key
    if (certificate is None) != (key is None):
        raise ConfigError("--tls-cert and --tls-key belong together: give both, or neither.")
    for path in (certificate, key):
        if path is not None and not path.is_file():
            raise ConfigError(f"There is no file {path}.")
    return ManagerOptions(
        port=options.port,
        host=options.host,
        url_prefix=options.url_prefix.strip("/"),
        tls_cert=certificate and certificate.resolve(),
        tls_key=key and key.resolve(),
        debug=options.debug,
    )


def find(options: argparse.Namespace, *, read_only: bool = False) -> RegistryEntry:
    """The experiment that the command line names; with `read_only` also one of Microsoft NNI.

    Raises: NotFound, Conflict if several match.
    """
    return _registry.find(options.id, running_only=options.id is None, read_only=read_only)


def folder_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for an experiment that is not where this machine knows it, as NNI has it."""
    parser.add_argument(
        *("-e", "--experiment-dir", "--experiment_dir"),
        dest="folder",
        type=Path,
        metavar="DIR",
        help="its folder, or the one that has it, if it is elsewhere",
    )


def find_with_folder(options: argparse.Namespace) -> RegistryEntry:
    """The experiment to be opened, in the folder that was given with it, if one was. Raises: as `_registry.at`."""
    if options.folder is None:
        return find(options, read_only=True)
    inner = options.folder / options.id
    entry = _registry.at(inner if inner.is_dir() else options.folder)
    if not entry.id.startswith(options.id):
        raise NotFound(f"The experiment in {options.folder} is {entry.id}, not {options.id}.")
    return entry


@contextmanager
def running(options: argparse.Namespace) -> Iterator[Client]:
    """A client of the manager of the named experiment. Raises: NotFound, NotRunning."""
    with managers.connect(find(options)) as found:
        yield found


@contextmanager
def reading(options: argparse.Namespace, *, timeout_s: float = managers.ANSWER_TIMEOUT_S) -> Iterator[Client]:
    """A client for reading: of the experiment's manager or, if it has none, of its folder."""
    with opened(find(options, read_only=True), timeout_s=timeout_s) as found:
        yield found
