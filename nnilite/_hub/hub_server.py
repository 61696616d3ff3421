"""Serves the page of all experiments until it is interrupted. A user has one such server at most."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import getpid
from pathlib import Path

from nnilite._experiments import registry
from nnilite._experiments.address import Address
from nnilite._experiments.documents import write_json
from nnilite._experiments.experiment_token import read_user_token
from nnilite._experiments.locking import ManagerLock, explain_no_lock
from nnilite._experiments.manager_state import read_manager
from nnilite._experiments.new_folders import make_own_folder
from nnilite._experiments.registry import RegistryEntry
from nnilite._hub.handlers import ID, HubContext
from nnilite._hub.hub import Hub
from nnilite._hub.hub_routes import ROUTES
from nnilite._logging.secret_filter import SecretFilter, guard_server_logs
from nnilite._manager import port_choice
from nnilite._network.host_names import is_loopback
from nnilite._rest import RestApplication, ServerOptions, assembled, listen, new_page_name, sign_in_address
from nnilite._rest.auth import AccessGate
from nnilite._rest.openapi import document
from nnilite._running import managers
from nnilite._running.launch import ManagerOptions
from nnilite.errors import Conflict, NniliteError

FIRST_PORT = 8070
PAGE = "hub.html"
COMMAND = "nnictl ui"


def make_unknown_token(job: str) -> str:
    """Return a new random token, which no request has: the hub has no jobs, so it refuses every callback."""
    return secrets.token_urlsafe(32)


def folder() -> Path:
    """Return the folder of the hub's own files: token, lock and address."""
    return registry.root() / ".nnilite" / "hub"


def find_served_address() -> str | None:
    """Return the address of the page that is served already, which signs in once; None if there is none.

    Raises: NniliteError if it does not answer.
    """
    directory = folder()
    if not registry.is_alive(directory):
        return None
    word = read_manager(directory)
    entry = RegistryEntry(ID, "", directory, alive=True, url=word.url, pid=word.pid)
    if word.url is None:
        process = f" (process {word.pid})" if word.pid else ""
        raise Conflict(f"{COMMAND} is starting{process}; try again in a moment.")
    with managers.connect(entry) as running:
        return running.sign_in_link()


def make_application(hub: Hub, token: str, options: ManagerOptions, *, require_token: bool = False) -> RestApplication:
    """Return the page's server, which follows the rules of a manager's."""
    # A proxy's requests come from this machine, no matter who sent them, so the address proves nothing.
    behind_proxy = bool(options.url_prefix.strip("/"))
    page_name = new_page_name(options.host, has_tls=options.tls_cert is not None, prefix=options.url_prefix)
    settings = ServerOptions(
        bind=options.host,
        own_user=is_loopback(options.host) and not require_token and not behind_proxy,
        page_name=page_name,
        url_prefix=options.url_prefix,
        page=PAGE,
        sign_in_command=COMMAND,
    )
    gate = AccessGate(token, make_unknown_token, settings)
    guard_server_logs([token])
    about = document(ROUTES, settings.prefix, "All experiments of a user on a machine.")
    return assembled(HubContext(gate=gate, options=settings, hub=hub), ROUTES, about)


def run(options: ManagerOptions, *, require_token: bool, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `ready` gets the page's address, which signs in if that is needed.

    Raises: NniliteError if it cannot be served; Conflict if it is already.
    """
    directory = folder()
    make_own_folder(directory)
    with _hold_lock(directory):
        asyncio.run(_serve(directory, options, require_token, ready))


def _close_to_others(directory: Path) -> None:
    """Let only this user enter the folder: the token in it opens all experiments."""
    if directory.stat().st_mode & 0o077:
        with contextlib.suppress(PermissionError):  # some network drives have no file modes
            directory.chmod(0o700)


@contextmanager
def _hold_lock(directory: Path) -> Iterator[None]:
    lock = ManagerLock(directory)
    try:
        lock.acquire()
    except BlockingIOError:
        raise Conflict(f"{COMMAND} is being started by another process; run it again for a link.") from None
    except OSError as error:
        elsewhere = "set NNILITE_HOME to a folder on a disk with locks"
        raise NniliteError(explain_no_lock(directory, error, "pages", elsewhere)) from error
    try:
        yield
    finally:
        lock.release()


async def _serve(directory: Path, options: ManagerOptions, require_token: bool, ready: Callable[[str], None]) -> None:
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    # The managers that are started from the page take any free port; the port that was asked for is the page's.
    hub = Hub(replace(options, port=None, url_prefix=""))
    token = read_user_token(directory)
    _close_to_others(directory)
    # An experiment that is read here puts its own filter on the server's loggers, in place of the page's.
    for handler in logging.getLogger().handlers:
        handler.addFilter(SecretFilter([token]))
    application = make_application(hub, token, options, require_token=require_token)
    server = port_choice.listening(
        lambda port: listen(application, options.host, port, options.tls_cert, options.tls_key),
        options.port,
        directory,
        FIRST_PORT,
    )
    scheme = "https" if options.tls_cert else "http"
    address = Address(scheme, options.host, server.port, application.context.options.prefix, options.tls_cert)
    certificate = str(options.tls_cert) if options.tls_cert else None
    write_json(
        directory / "manager.json",
        {"pid": getpid(), "port": server.port, "url": address.url, "tls_cert": certificate},
    )
    # With SSH, the browser is usually on another machine, whose requests need a sign-in.
    needs_none = application.context.options.own_user and not managers.is_remote_shell()
    ready(address.url + "/" if needs_none else sign_in_address(application, address.url))
    try:
        await over.wait()
    finally:
        # New requests are refused first: closing the hub waits for the reads that have begun.
        server.refuse_connections()
        hub.close()
        await server.end()
