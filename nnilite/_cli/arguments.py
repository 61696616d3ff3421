"""The arguments that several commands have, and the types of their values.

A command waits for this module before it does anything, so it imports little.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_experiment_argument(parser: argparse.ArgumentParser) -> None:
    """Add the optional id of an experiment."""
    parser.add_argument(
        "id", nargs="?", help="id of the experiment, or its first letters; default: the only running one"
    )


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the configuration file, with --config as in NNI or without. `choose_config` returns which one was given."""
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="configuration file (YAML)")
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="the configuration file, as in NNI")
    parser.set_defaults(refuse=parser.error)


def choose_config(options: argparse.Namespace) -> Path | None:
    """Return the configuration file that was given, None if there is none. End with an error if there are two."""
    if options.config is not None and options.file is not None:
        options.refuse(f"{options.file} and --config {options.config} are two configuration files; give one.")
    config: Path | None = options.config or options.file
    return config


def add_json_argument(parser: argparse.ArgumentParser, text: str = "print JSON") -> None:
    """Add --json, which every command has."""
    parser.add_argument("--json", action="store_true", help=text)


def state(text: str) -> str:
    """Parse the state of a trial, in capitals or not."""
    return text.upper()


FORMER_PORT = "the former one, or a free one from 8080"


def add_manager_arguments(parser: argparse.ArgumentParser, default_port: str = "8080, or the next free one") -> None:
    """Add the options on where a new server listens."""
    parser.add_argument("-p", "--port", type=port, help=f"port (default: {default_port}; 0: any)")
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
    """Parse a port number."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: ports go from 0 to 65535")
    return int(text)


def positive(text: str) -> int:
    """Parse a count of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    if int(text) > _MOST:
        raise argparse.ArgumentTypeError(f"{text} is too large; write at most {_MOST}")
    return int(text)


_MOST = 1_000_000_000
"""What no count needs to exceed. The system's calls and Python's own lists have limits, too."""


def amount(text: str) -> float:
    """Parse an amount of money."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not an amount of at least 0")
    return number


def finite(text: str) -> float:
    """Parse a number that is neither infinite nor NaN."""
    from nnilite.units import parse_finite

    try:
        return parse_finite(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def size(text: str) -> int:
    """Parse a size in bytes, such as 200gb."""
    from nnilite.units import parse_size_bytes

    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_folder_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for an experiment that is not where this machine knows it, as NNI has it."""
    parser.add_argument(
        *("-e", "--experiment-dir", "--experiment_dir"),
        dest="folder",
        type=Path,
        metavar="DIR",
        help="its folder, or the folder that contains it, if it is elsewhere",
    )
