"""The manager's program: `python -m nnilite._manager --directory DIR --mode create|resume|view ...`.

Started by `nnilite._launch`. It says on --ready-fd, in one JSON line, where it listens or why it cannot start.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from nnilite import _registry
from nnilite._manager import assembly
from nnilite._manager.engine import end_tasks
from nnilite._manager.reading import Reading
from nnilite._rest import Options, SecretFilter, listen, make_application
from nnilite._rest.auth import is_loopback
from nnilite.errors import NniliteError, ServiceError
from nnilite.records import ExperimentState

log = logging.getLogger("nnilite.manager")

_LAST_WORDS_S = 0.5  # clients may still read the final state
_CLOSE_TIMEOUT_S = 10.0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m nnilite._manager")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--mode", choices=["create", "resume", "view"], required=True)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--url-prefix", default="")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--with-parent", action="store_true", help="stop when standard input ends")
    parser.add_argument("--detach", action="store_true", help="go on in a process that is nobody's child")
    parser.add_argument("--debug", action="store_true")
    return parser.parse_args(arguments)


class Program:
    """One manager, from its start to its end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._directory: Path = options.directory
        prefix = "/" + options.url_prefix.strip("/") if options.url_prefix.strip("/") else ""
        scheme = "https" if options.tls_cert else "http"
        self._address = assembly.Address(scheme, options.host, options.port, prefix, options.tls_cert)
        self._stopping = asyncio.Event()
        self.resumed = False  # a view that is to become a running manager
        self._names: list[str] = []  # by which workers call this manager, beside its address

    async def run(self) -> None:
        """Raises: NniliteError if it cannot start, or cannot go on."""
        config = assembly.load_config(self._directory, paths=self._options.mode != "view")
        new = self._options.mode == "create"
        store = assembly.open_store(self._directory, new, time.time())
        needs_token = config.require_token or not is_loopback(self._options.host)
        token = assembly.user_token(self._directory)
        for handler in logging.getLogger().handlers:
            handler.addFilter(SecretFilter([*config.secrets, token]))
        given = [config.nni_manager_ip, *(config.settings(name).nni_manager_ip for name, _, _ in config.services)]
        self._names = [name for name in given if name]
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        if self._options.with_parent:
            asyncio.get_running_loop().add_reader(0, self._parent_ended)
        if self._options.mode == "view":
            await self._serve_view(
                assembly.assemble_view(self._directory, config, store, token if needs_token else None)
            )
            return
        parts = assembly.assemble(self._directory, config, store, self._address, token if needs_token else None)
        await self._serve(parts, new)

    async def _serve_view(self, reading: Reading) -> None:
        server = self._listen(reading)
        state, ended = reading.standing().state, reading.standing().ended
        self._write_state(ExperimentState.VIEWED, ended)
        self._ready()
        self.resumed = await self._resumed_or_stopped(reading)
        server.stop()
        self._write_state(state, ended)
        reading.reader.close()

    async def _resumed_or_stopped(self, reading: Reading) -> bool:
        """Wait for either; true if the experiment is to go on."""
        waits = [asyncio.create_task(event.wait()) for event in (self._stopping, reading.resuming)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        await asyncio.sleep(_LAST_WORDS_S if reading.resuming.is_set() else 0)  # the answer has to get out
        return reading.resuming.is_set() and not self._stopping.is_set()

    def command(self) -> list[str]:
        """The program that goes on with what was viewed, at the same address."""
        options = self._options
        words = [sys.executable, "-m", "nnilite._manager", "--directory", str(self._directory), "--mode", "resume"]
        words += ["--port", str(self._address.port), "--host", options.host]
        words += ["--url-prefix", options.url_prefix] if options.url_prefix else []
        words += ["--tls-cert", str(options.tls_cert)] if options.tls_cert else []
        words += ["--tls-key", str(options.tls_key)] if options.tls_key else []
        words += ["--with-parent"] if options.with_parent else []
        return words + (["--debug"] if options.debug else [])

    async def _serve(self, parts: assembly.Assembled, new: bool) -> None:
        server = self._listen(parts.manager)
        (self._directory / "callback").write_text(self._address.url, "ascii")
        try:
            if new:  # what cannot work is said before anything runs
                await parts.tuner.open(0)
                await parts.engine.desk.open()
            parts.manager.state_changed = self._write_state
            self._write_state(parts.engine.rules.state, None)
            self._ready()
            await self._work(parts)
            parts.manager.changes.publish(await parts.manager.profile())  # else its last state might go untold
            await asyncio.sleep(_LAST_WORDS_S)
        finally:
            server.stop()
            await self._close(parts)

    async def _work(self, parts: assembly.Assembled) -> None:
        helpers = [asyncio.create_task(parts.publisher.run()), asyncio.create_task(self._stop_when_told(parts))]
        try:
            await parts.engine.run()
        finally:
            await end_tasks(helpers)
            await parts.publisher.tidy_up(parts.engine.rules)

    async def _stop_when_told(self, parts: assembly.Assembled) -> None:
        await self._stopping.wait()
        await parts.manager.stop()

    async def _close(self, parts: assembly.Assembled) -> None:
        for closing in (parts.tuner.close(), parts.service.close()):
            try:
                await asyncio.wait_for(closing, _CLOSE_TIMEOUT_S)
            except ServiceError as error:
                log.warning("left behind: %s", error)
                self._write_left(str(error))
            except (asyncio.TimeoutError, NniliteError, OSError) as error:
                log.warning("not closed in good order: %r", error)
        parts.ledger.close()
        parts.reader.close()

    # ------------------------------------------------------------ telling others

    def _listen(self, backend: Reading) -> Any:
        options = self._options
        application = make_application(backend, Options(options.host, self._names, options.url_prefix))
        server = listen(application, options.host, options.port, options.tls_cert, options.tls_key)
        self._address.port = server.port
        backend.about = assembly.located(backend.about, self._address)
        return server

    def _write_state(self, state: ExperimentState, ended: float | None) -> None:
        about = {"state": state.value, "ended": ended, "pid": os.getpid(), "port": self._address.port}
        about |= {"url": self._address.url, "mode": self._options.mode}
        about |= {"tls_cert": str(self._options.tls_cert.resolve()) if self._options.tls_cert else None}
        if self._options.mode == "view":  # which does nothing about what a stop has left behind
            about = {**_registry.read_manager(self._directory), **about}
        try:
            _registry.write_json(self._directory / "manager.json", about)
        except OSError as error:  # a full disk: the state is still served
            log.error("cannot write manager.json: %s", error)

    def _write_left(self, what: str) -> None:
        """For who asked for the stop."""
        try:
            about = _registry.read_manager(self._directory)
            _registry.write_json(self._directory / "manager.json", {**about, "left": what})
        except OSError as error:
            log.error("cannot write manager.json: %s", error)

    def _ready(self) -> None:
        log.info("experiment %s is served at %s", self._directory.name, self._address.url)
        self.say({"ready": "yes", "url": self._address.url})

    def say(self, answer: dict[str, str]) -> None:
        """Tell who started us; once."""
        descriptor, self._options.ready_fd = self._options.ready_fd, None
        if descriptor is not None:
            with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "w") as out:
                out.write(json.dumps(answer) + "\n")

    def _parent_ended(self) -> None:
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            self._stopping.set()


def configure_logging(debug: bool) -> None:
    handler = logging.StreamHandler()
    handler.addFilter(SecretFilter())
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s (%(name)s) %(message)s", "%Y-%m-%d %H:%M:%S"))
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler])


async def main(options: argparse.Namespace) -> int:
    program = Program(options)
    try:
        with _registry.lock(options.directory):
            await program.run()
    except NniliteError as error:
        log.error("%s", error)
        program.say({"error": str(error)})
        return 1
    if program.resumed:
        log.info("going on with the experiment")
        os.execv(sys.executable, program.command())
    return 0


if __name__ == "__main__":
    namespace = parse(sys.argv[1:])
    configure_logging(namespace.debug)
    if namespace.detach and os.fork():
        os._exit(0)
    sys.exit(asyncio.run(main(namespace)))
