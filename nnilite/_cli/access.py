"""From what the command line says to an experiment and its manager.

Every command that only reads works on stopped experiments, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnilite import _managers, _registry
from nnilite._client import Client
from nnilite._launch import ManagerOptions
from nnilite._registry import Entry
from nnilite.errors import ConfigError


def experiment_argument(parser: argparse.ArgumentParser) -> None:
    """The optional id of an experiment."""
    parser.add_argument("id", nargs="?", help="id of the experiment, or its start; default: the only one that runs")


def manager_arguments(parser: argparse.ArgumentParser) -> None:
    """Where a manager that is started listens."""
    parser.add_argument("-p", "--port", type=port, default=8080, help="port (default 8080; 0 picks a free one)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument(
        "-u", "--url-prefix", "--url_prefix", default="", metavar="PATH", help="path under which it is served"
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate (PEM), to serve https")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="private key of the certificate (PEM)")
    parser.add_argument(
        "-d", "--debug", action="store_true", default=argparse.SUPPRESS, help="log in detail; show tracebacks"
    )


def port(text: str) -> int:
    """A port number from the command line."""
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: ports go from 0 to 65535")
    return number


def positive(text: str) -> int:
    """A count of at least one from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 1")
    return number


def manager_options(options: argparse.Namespace) -> ManagerOptions:
    """Raises: ConfigError if only one half of the TLS pair is given, or is not there."""
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


def find(options: argparse.Namespace) -> Entry:
    """The experiment that is meant. Raises: NotFound, Conflict if several could be."""
    return _registry.find(options.id, running_only=options.id is None)


@contextmanager
def running(options: argparse.Namespace) -> Iterator[Client]:
    """The manager of the running experiment that is meant. Raises: NotFound, NotRunning."""
    with _managers.connect(find(options)) as found:
        yield found


@contextmanager
def reading(options: argparse.Namespace, *, timeout_s: float = _managers.ANSWER_TIMEOUT_S) -> Iterator[Client]:
    """Something to read from: the experiment's manager, or, if it has none, its folder."""
    entry = find(options)
    if entry.alive:
        with _managers.connect(entry, timeout_s=timeout_s) as found:
            yield found
        return
    from nnilite._cli import offline

    with offline.opened(entry) as found:
        yield found
