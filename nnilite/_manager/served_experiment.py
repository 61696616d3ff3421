"""What a running manager and a viewer have in common: their address, token and server, and what ends them."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nnilite._experiments.address import Address
from nnilite._experiments.experiment_token import read_user_token
from nnilite._experiments.manager_options import ManagerOptions
from nnilite._logging.secret_filter import SecretFilter
from nnilite._manager.manager import Manager
from nnilite._manager.port_choice import listening
from nnilite._manager.ready_pipe import ReadyPipe
from nnilite._manager.runtime_files import RuntimeFiles
from nnilite._network.host_names import is_loopback
from nnilite._rest import ServerContext, ServerOptions, listen, make_application, new_page_name
from nnilite._views.experiment_view import located
from nnilite._views.viewer import Viewer
from nnilite.config import CheckedConfig

log = logging.getLogger("nnilite.manager")

LAST_WORDS_S = 0.5
"""For this time, clients can still read the final state."""

_LAST_WORDS_LOOK_S = 0.01
_LOOK_S = 1.0


class ServedExperiment:
    """The experiment of a folder, as this process serves it to browsers, commands and workers.

    `mode`: create, resume or view. `with_parent`: the process belongs to the program that has started it, and ends when
    its standard input does. `stopping` is set when a signal or that program asks it to end, or when requests have
    stopped coming.
    """

    def __init__(
        self, directory: Path, mode: str, options: ManagerOptions, ready_pipe: ReadyPipe, *, with_parent: bool
    ) -> None:
        self.directory = directory
        self.mode = mode
        self.options = options
        self.with_parent = with_parent
        self.ready_pipe = ready_pipe
        self.stopping = asyncio.Event()
        path = options.url_prefix.strip("/")
        scheme = "https" if options.tls_cert else "http"
        self.address = Address(scheme, options.host, options.port or 0, f"/{path}" if path else "", options.tls_cert)
        self.files = RuntimeFiles(directory, self.address, mode=mode)
        self._own_user = False  # whether this user's own programs need no token
        self._names: list[str] = []  # under which workers reach it, apart from its address
        self._idle_timeout_s = math.inf
        self._context: ServerContext | None = None

    def prepare(self, config: CheckedConfig) -> str:
        """Take over what a config says of the process itself. Return the token that opens it."""
        given = [config.nni_manager_ip, *(config.settings(name).nni_manager_ip for name, _, _ in config.services)]
        self._names = [name for name in given if name]
        return self.prepare_without_config(config.idle_timeout, config.secrets, require_token=config.require_token)

    def prepare_without_config(
        self, idle_timeout_s: int, secrets: Iterable[str] = (), *, require_token: bool = False
    ) -> str:
        """Do the same by what alone counts of a config."""
        if not self.with_parent:  # otherwise it ends with that program
            self._idle_timeout_s = idle_timeout_s
        # All requests through a proxy come from the user who runs the proxy, which proves nothing about the sender.
        behind_proxy = bool(self.address.prefix)
        self._own_user = is_loopback(self.options.host) and not require_token and not behind_proxy
        token = read_user_token(self.directory)
        for handler in logging.getLogger().handlers:
            handler.addFilter(SecretFilter([*secrets, token]))
        self._obey_signals()
        return token

    def listen(self, backend: Viewer | Manager) -> Any:
        """Serve a manager or a viewer by REST. Return the server. Raises: ConfigError, ServiceError, OSError."""
        options = self.options
        page_name = new_page_name(options.host, has_tls=options.tls_cert is not None, prefix=options.url_prefix)
        settings = ServerOptions(
            options.host,
            self._names,
            self._own_user,
            page_name,
            options.url_prefix,
            sign_in_command=f"nnictl webui url {self.directory.name}",
        )
        application = make_application(backend, settings)
        self._context = application.context
        server = listening(
            lambda port: listen(application, options.host, port, options.tls_cert, options.tls_key),
            options.port,
            self.directory,
        )
        self.address.port = server.port
        backend.profiles.about = located(backend.profiles.about, self.address)
        return server

    def tell_ready(self) -> None:
        """Tell the program that started this one that the experiment is served."""
        log.info("experiment %s is served at %s", self.directory.name, self.address.url)
        self.ready_pipe.answer({"ready": "yes", "url": self.address.url})

    async def stop_when_idle(self, is_over: Callable[[], bool]) -> None:
        """Set `stopping` when there was no request for `idleTimeout` since the experiment was over."""
        assert self._context is not None
        since = time.monotonic()
        while min(self._context.idle_s(), time.monotonic() - since) < self._idle_timeout_s:
            await asyncio.sleep(_LOOK_S)
            if not is_over():
                since = time.monotonic()
        log.info("no request has come for %d s (idleTimeout); this manager ends", self._idle_timeout_s)
        self.stopping.set()

    async def await_last_readers(self) -> None:
        """Give clients a moment to read the final state. Those that ask again keep their connections open."""
        until = time.monotonic() + LAST_WORDS_S
        while self._context is not None and self._context.has_callers and time.monotonic() < until:
            await asyncio.sleep(_LAST_WORDS_LOOK_S)

    def _obey_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stopping.set)
        if self.with_parent:
            asyncio.get_running_loop().add_reader(0, self._note_parent_end)

    def _note_parent_end(self) -> None:
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            self.stopping.set()
