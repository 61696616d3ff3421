"""Finds the experiment that a command is about, and its manager.

Every command that only reads works on stopped experiments, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnilite._cli import trial_names
from nnilite._experiments import registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._running import managers
from nnilite._running.launch import ManagerOptions
from nnilite._running.manager_client import Client
from nnilite._running.reading import opened
from nnilite.errors import ConfigError, Conflict, NotFound


def read_manager_options(options: argparse.Namespace) -> ManagerOptions:
    """Return the options of a new manager.

    Raises: ConfigError if a half of the TLS pair is not set, or does not exist.
    """
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
    """Return the experiment that the command line names; with `read_only` also one of Microsoft NNI.

    Raises: NotFound, Conflict if several match, ConfigError if it names no trial and needs one.
    """
    trial_names.settle(options)
    return registry.find(options.id, running_only=options.id is None, read_only=read_only)


def find_with_folder(options: argparse.Namespace) -> RegistryEntry:
    """Return the experiment to be opened, in the folder that was given with it, if one was.

    Raises: as `registry.at`.
    """
    if options.folder is None:
        return find(options, read_only=True)
    # NNI's option names the folder that has the experiments; people also give the folder of the experiment itself.
    folder = _find_below(options.folder, options.id) or options.folder
    is_of_nnilite = (folder / "config.json").is_file()
    # Before it is registered under a name that nobody has asked for.
    entry = None if is_of_nnilite and not folder.name.startswith(options.id) else registry.at(folder)
    known = folder.name if entry is None else entry.id
    if entry is None or not known.startswith(options.id):
        cure = "write that" + (", or rename the folder, whose name is the id" if is_of_nnilite else "")
        raise NotFound(f"The experiment in {folder} has the id {known}, not {options.id}; {cure}.")
    return entry


def _find_below(folder: Path, experiment: str) -> Path | None:
    """Return the folder of an experiment with this id or prefix, among those in a folder. Raises: Conflict."""
    if not registry.is_id(experiment):
        return None
    if (folder / experiment).is_dir():
        return folder / experiment
    found = [one for one in folder.glob(f"{experiment}*") if (one / "config.json").is_file()]
    if len(found) > 1:
        raise Conflict(f"'{experiment}' is the start of several ids: {', '.join(sorted(one.name for one in found))}.")
    return found[0] if found else None


@contextmanager
def running(options: argparse.Namespace) -> Iterator[Client]:
    """Yield a client of the manager of the named experiment. Raises: NotFound, NotRunning."""
    with managers.connect(find(options)) as found:
        # Trials may be named by their numbers, which only the manager can turn into ids.
        trial_names.resolve(options, found)
        yield found


@contextmanager
def reading(options: argparse.Namespace, *, timeout_s: float = managers.ANSWER_TIMEOUT_S) -> Iterator[Client]:
    """Yield a client for reading: of the experiment's manager or, if it has none, of its folder."""
    with opened(find(options, read_only=True), timeout_s=timeout_s) as found:
        trial_names.resolve(options, found)
        yield found
