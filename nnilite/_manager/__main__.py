"""The manager's program: `python -m nnilite._manager --directory DIR --mode create|resume|view ...`.

`nnilite._running.manager_process` starts it with `--stand-by FD`, and sends these words later to its standard input. It
writes JSON lines to FD, in which `starter` reports the progress of the start.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nnilite._checkpoints.checkpoint_tidying import keep_tidy
from nnilite._engine.engine import end_tasks
from nnilite._experiments import registry, search_folder
from nnilite._experiments.address import Address
from nnilite._experiments.experiment_token import read_user_token
from nnilite._experiments.file_guard import Guard, Kept
from nnilite._experiments.locking import ManagerLock
from nnilite._experiments.manager_options import ManagerOptions
from nnilite._keeper.niceness import go_first
from nnilite._keeper.starting import find_cure
from nnilite._logging.secret_filter import SecretFilter
from nnilite._manager import assembly, standing_by
from nnilite._manager.log_limits import LogLimits, keep_logs_small
from nnilite._manager.manager import Manager
from nnilite._manager.own_files import OwnFiles, files_of
from nnilite._manager.port_choice import listening
from nnilite._manager.start_recording import record_start
from nnilite._manager.starter import Starter
from nnilite._network.host_names import is_loopback
from nnilite._nni import nni_taken
from nnilite._plugins import lookup
from nnilite._rest import CallbackSocket, Options, Premises, listen, make_application, new_page_name
from nnilite._side_processes.keeping import Feeder, keep_fed
from nnilite._side_processes.quick_end import run_program
from nnilite._store.database_file import FILE_NAME, refuse_newer_database
from nnilite._store.settings_of_config import is_maximizing
from nnilite._store.writer import Store, open_store
from nnilite._trackers import list_trackers
from nnilite._tuner_host.tuner_process import TunerProcess
from nnilite._views.experiment_view import assemble_view, located
from nnilite._views.viewer import Viewer
from nnilite._webhooks import list_webhooks
from nnilite.config import CheckedConfig, load_stored
from nnilite.errors import ConfigError, Conflict, NniliteError, ServiceError, StoreError, explain_os_error
from nnilite.records import ExperimentState

log = logging.getLogger("nnilite.manager")

_LAST_WORDS_S = 0.5  # for this time, clients can still read the final state
_LAST_WORDS_LOOK_S = 0.01
_CLOSE_TIMEOUT_S = 10.0
_MOST_NAMED = 5
_LOOK_S = 1.0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m nnilite._manager")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--mode", choices=["create", "resume", "view"], required=True)
    parser.add_argument("--port", type=int, help="default: 8080, or the next free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--url-prefix", default="")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--log", type=Path, help="where all output goes")
    parser.add_argument("--with-parent", action="store_true", help="stop when standard input ends")
    parser.add_argument(
        "--detach", action="store_true", help="continue in the background, independent of the parent process"
    )
    parser.add_argument("--debug", action="store_true")
    return parser.parse_args(arguments)


class Program:
    """One manager, from its start to its end."""

    def __init__(self, options: argparse.Namespace, starter: Starter) -> None:
        self._options = options
        self._starter = starter
        self._directory: Path = options.directory
        prefix = "/" + options.url_prefix.strip("/") if options.url_prefix.strip("/") else ""
        scheme = "https" if options.tls_cert else "http"
        self._address = Address(scheme, options.host, options.port or 0, prefix, options.tls_cert)
        self._files = OwnFiles(self._directory, self._address, mode=options.mode)
        self._stopping = asyncio.Event()
        self.resumed = False  # whether this viewer is to become a running manager
        self._own_user = False  # whether this user's own programs need no token
        # The names, apart from its address, under which workers reach this manager.
        self._names: list[str] = []
        self._site: Premises | None = None
        self._idle_timeout_s = math.inf
        self._feeders: list[Feeder] = []
        self._recording: Callable[[asyncio.Event], Coroutine[Any, Any, None]] | None = None

    async def run(self, lock: ManagerLock) -> None:
        """Run until the experiment has stopped. Raises: NniliteError if the manager cannot start or cannot continue."""
        if nni_taken.is_copy(self._directory):
            await self._show_nni()
            return
        if self._options.mode == "resume" and search_folder.is_search(self._directory):
            raise Conflict(search_folder.explain_no_resume_of_search(self._directory.name, self._directory))
        registry.make_folders(self._directory)
        refuse_newer_database(self._directory / FILE_NAME)
        if self._options.mode == "view":
            await self._view()
            return
        # The tuner's process loads what it needs while everything else is put together.
        tuner = await assembly.start_tuner_ahead(self._directory)
        try:
            await self._manage(lock, tuner)
        finally:
            if tuner is not None:
                await tuner.end()

    async def _view(self) -> None:
        config = load_stored(self._directory, paths=False)
        store = open_store(self._directory, False, time.time())
        token = self._prepare(config)
        viewer = assemble_view(self._directory, config, store, token)
        self._files.created = viewer.profiles.about.created
        await self._serve_view(viewer, store)

    async def _manage(self, lock: ManagerLock, tuner: TunerProcess | None) -> None:
        config = load_stored(self._directory)
        new = self._options.mode == "create"
        store = open_store(self._directory, new, time.time())
        token = self._prepare(config)
        if new:
            await asyncio.to_thread(assembly.take_results, config, store)
            await asyncio.to_thread(assembly.add_first_trials, config, store)
        await asyncio.to_thread(assembly.prepare_storage, self._directory, config, new)
        parts = assembly.assemble(
            self._directory, config, store, self._address, token, self._files.write_state, self._starter.packed
        )
        for one in config.without_effect:
            log.warning("%s", one.sentence)
        if tuner is not None:
            parts.tuner.adopt(tuner)
        about = parts.manager.profiles.about
        self._files.created = about.created
        files = files_of(self._directory, config, token, about)
        self._files.guard = Guard(self._directory, lock, parts.keeper, files)
        self._recording = partial(record_start, self._directory, config)
        await self._serve(parts, new)

    def _prepare(self, config: CheckedConfig) -> str:
        """Take over what the config says of this manager itself; returns the token that opens it."""
        self._end_when_idle(config.idle_timeout)
        token = self._access(config.secrets, config.require_token)
        given = [config.nni_manager_ip, *(config.settings(name).nni_manager_ip for name, _, _ in config.services)]
        self._names = [name for name in given if name]
        maximize = is_maximizing(config.json().get("tuner") or {})
        self._feeders = [*list_trackers(self._directory, config), *list_webhooks(self._directory, config, maximize)]
        self._obey_signals()
        return token

    def _end_when_idle(self, after: int) -> None:
        """Have `_idle` end this manager, unless it belongs to a program and ends with that."""
        if not self._options.with_parent:
            self._idle_timeout_s = after

    def _access(self, secrets: Iterable[str], require_token: bool) -> str:
        """Decide who needs the token, which is returned, and keep it and the secrets out of the log."""
        # All requests through a proxy come from the user who runs the proxy, which proves nothing about the sender.
        behind_proxy = bool(self._options.url_prefix.strip("/"))
        self._own_user = is_loopback(self._options.host) and not require_token and not behind_proxy
        token = read_user_token(self._directory)
        for handler in logging.getLogger().handlers:
            handler.addFilter(SecretFilter([*secrets, token]))
        return token

    def _obey_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        if self._options.with_parent:
            asyncio.get_running_loop().add_reader(0, self._note_parent_end)

    async def _show_nni(self) -> None:
        """Show an experiment of Microsoft NNI. Raises: NniliteError if it cannot be read, or is to be resumed."""
        if self._options.mode != "view":
            raise Conflict(registry.explain_no_resume(self._directory.name))
        from nnilite._nni import nni_view

        self._end_when_idle(CheckedConfig.idle_timeout)  # NNI's configuration has no such field
        viewer, store = nni_view.open_view(self._directory, self._access((), False))
        self._obey_signals()
        await self._serve_view(viewer, store)

    async def _serve_view(self, reading: Viewer, store: Store) -> None:
        # An open database has files next to it, which may not go away once the lock says that the folder is free.
        with contextlib.closing(store), contextlib.closing(reading.results):
            await self._show(reading)

    async def _show(self, reading: Viewer) -> None:
        server = self._listen(reading)
        state, ended = reading.progress().state, reading.progress().ended
        reading.show_as_viewed()
        self._files.write_state(ExperimentState.VIEWED, ended)
        self._ready()
        watches = [asyncio.create_task(reading.watch()), asyncio.create_task(keep_logs_small(self._limits()))]
        self.resumed = await self._await_resume_or_stop(reading)
        await end_tasks(watches)
        await server.end()
        self._files.write_state(state, ended)

    async def _await_resume_or_stop(self, reading: Viewer) -> bool:
        """Wait until a user resumes or stops the view. Return whether the experiment is to be resumed."""
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(event.wait()) for event in (self._stopping, reading.control.resuming)
        ]
        waits.append(asyncio.create_task(self._idle(lambda: True)))
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        # The answer to the request for the resume has to be sent first.
        await asyncio.sleep(_LAST_WORDS_S if reading.control.resuming.is_set() else 0)
        return reading.control.resuming.is_set() and not self._stopping.is_set()

    async def _await_last_readers(self) -> None:
        """Give clients a moment to read the final state. Those that ask again keep their connections open."""
        until = time.monotonic() + _LAST_WORDS_S
        while self._site is not None and self._site.has_callers and time.monotonic() < until:
            await asyncio.sleep(_LAST_WORDS_LOOK_S)

    def command(self) -> list[str]:
        """Return the command line that resumes the viewed experiment at the same address."""
        given = self._options
        same = ManagerOptions(
            port=self._address.port,
            host=given.host,
            url_prefix=given.url_prefix,
            tls_cert=given.tls_cert,
            tls_key=given.tls_key,
            debug=given.debug,
        )
        words = [sys.executable, "-m", "nnilite._manager", "--directory", str(self._directory), "--mode", "resume"]
        return [*words, *same.words(), *(["--with-parent"] if given.with_parent else [])]

    async def _serve(self, parts: assembly.Assembled, new: bool) -> None:
        server = self._listen(parts.manager)
        self._files.write("callback", Kept(self._address.url.encode("ascii")))
        short_way = CallbackSocket(self._directory / "callback", parts.manager.callbacks)
        await short_way.listen()
        try:
            if new:
                await self._open(parts)
            self._files.write_state(parts.engine.rules.state, None)
            await asyncio.to_thread(parts.manager.reserve.keep)
            self._ready()
            await self._work(parts)
            # Without this, clients might miss the last state.
            if parts.manager.changes.has_readers:
                parts.manager.changes.publish(await parts.manager.profile())
            await self._await_last_readers()
        finally:
            server.turn_away()
            short_way.close()
            parts.manager.reserve.release()
            if self._files.guard is not None:
                # The thread of a look continues when its task is canceled.
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(asyncio.to_thread(self._files.guard.close), _CLOSE_TIMEOUT_S)
            await self._close(parts)
            with contextlib.suppress(OSError):  # the tuner's process may have printed until it was ended
                self._limits().look()
            # The lock, which shows others that this manager is alive, is given back right after the port.
            await server.end()

    async def _open(self, parts: assembly.Assembled) -> None:
        """Open all parts, so that faults are reported before anything runs. Raises: NniliteError, also if stopped."""

        async def both() -> None:
            # Both start processes, which load what they need at the same time.
            calls = parts.engine.rules.calls
            opened = [asyncio.create_task(parts.tuner.open(calls)), asyncio.create_task(parts.engine.caller.open())]
            try:
                await asyncio.gather(*opened)
            finally:
                await end_tasks(opened)

        opening, stopping = asyncio.create_task(both()), asyncio.create_task(self._stopping.wait())
        await asyncio.wait([opening, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not opening.done():
            await end_tasks([opening])
            raise Conflict("the experiment was stopped before it began")
        opening.result()

    async def _work(self, parts: assembly.Assembled) -> None:
        watches = [
            asyncio.create_task(parts.publisher.run(parts.manager.profile)),
            asyncio.create_task(self._stop_when_told(parts)),
            asyncio.create_task(self._idle(lambda: parts.engine.rules.state is ExperimentState.DONE)),
        ]
        over, limiting = asyncio.Event(), asyncio.create_task(keep_logs_small(self._limits()))
        feeding = asyncio.create_task(keep_fed(self._feeders, over))
        tidying = asyncio.create_task(keep_tidy(parts.tidiers, over))
        recording = asyncio.create_task(self._recording(over)) if self._recording is not None else None
        works = [asyncio.create_task(parts.engine.run()), asyncio.create_task(self._look_after(parts))]
        try:
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await end_tasks([*works, *watches])
            # They come last, since what the end of the experiment has stored is theirs, too.
            over.set()
            await asyncio.gather(feeding, tidying, *([recording] if recording is not None else []))
            await end_tasks([limiting])

    def _limits(self) -> LogLimits:
        fork_server = self._directory / "fork-server.log"
        return LogLimits(
            self._directory, [fork_server, *(feeder.output for feeder in self._feeders if feeder.output is not None)]
        )

    async def _idle(self, is_over: Callable[[], bool]) -> None:
        """Stop when there was no request for `idleTimeout` since the experiment was over."""
        since = time.monotonic()
        while self._site is not None:
            await asyncio.sleep(_LOOK_S)
            if not is_over():
                since = time.monotonic()
            idle_s = min(self._site.idle_s(), time.monotonic() - since)
            if idle_s >= self._idle_timeout_s:
                log.info("no request has come for %.0f s (idleTimeout); this manager ends", idle_s)
                self._stopping.set()
                return

    async def _look_after(self, parts: assembly.Assembled) -> None:
        """Look after the files that may be removed from outside. Raises: NniliteError when the manager has to end."""
        said = ""
        while self._files.guard is not None:
            await asyncio.sleep(_LOOK_S)
            await asyncio.to_thread(self._files.guard.look)
            await asyncio.to_thread(parts.manager.reserve.keep)
            try:
                await parts.store.keep_place()
            except StoreError as error:
                if not error.busy:
                    raise
                if str(error) != said:
                    log.error("%s", error)
                said = str(error)
            else:
                said = ""

    async def _stop_when_told(self, parts: assembly.Assembled) -> None:
        await self._stopping.wait()
        try:
            await parts.manager.control.stop()
        except ServiceError as error:
            log.warning("asked to stop: %s", error)

    async def _close(self, parts: assembly.Assembled) -> None:
        left = [_describe_unconfirmed(parts.engine.rules.abandoned)] if parts.engine.rules.abandoned else []
        for closing in (parts.tuner.close(committed=parts.store.settled), parts.service.close()):
            try:
                await asyncio.wait_for(closing, _CLOSE_TIMEOUT_S)
            except ServiceError as error:
                left.append(str(error))
            except (asyncio.TimeoutError, NniliteError, OSError) as error:
                log.warning("closing failed: %r", error)
        if left:
            log.warning("left behind: %s", "; ".join(left))
            self._files.write_left("; ".join(left))
        # The last connection that may write puts the whole database into its main file; readers must be gone by then.
        parts.reader.close()
        parts.store.close()

    # ------------------------------------------------------------ reports to others

    def _listen(self, backend: Viewer | Manager) -> Any:
        options = self._options
        page_name = new_page_name(options.host, has_tls=options.tls_cert is not None, prefix=options.url_prefix)
        settings = Options(
            options.host,
            self._names,
            self._own_user,
            page_name,
            options.url_prefix,
            sign_in_command=f"nnictl webui url {self._directory.name}",
        )
        application = make_application(backend, settings)
        self._site = application.site
        server = listening(
            lambda port: listen(application, options.host, port, options.tls_cert, options.tls_key),
            options.port,
            self._directory,
        )
        self._address.port = server.port
        backend.profiles.about = located(backend.profiles.about, self._address)
        return server

    def _ready(self) -> None:
        log.info("experiment %s is served at %s", self._directory.name, self._address.url)
        self._starter.answer({"ready": "yes", "url": self._address.url})

    def _note_parent_end(self) -> None:
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            self._stopping.set()


def _describe_unconfirmed(trials: Sequence[str]) -> str:
    """Return a sentence on trials whose end the platform did not confirm in time."""
    named = ", ".join(trials[:_MOST_NAMED]) + (f" and {len(trials) - _MOST_NAMED} more" * (len(trials) > _MOST_NAMED))
    return f"the end of trial {named} was not confirmed by its platform, where it may still run: look there, and end it"


def configure_logging(debug: bool) -> None:
    handler = logging.StreamHandler()
    handler.addFilter(SecretFilter())
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s (%(name)s) %(message)s", "%Y-%m-%d %H:%M:%S"))
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler])


async def main(options: argparse.Namespace) -> int:
    starter = Starter(options.ready_fd)
    program = Program(options, starter)
    try:
        with registry.lock(options.directory) as lock:
            await program.run(lock)
    except (NniliteError, OSError) as error:
        log.error("%s", error)
        starter.answer(_refusal(error))
        return 1
    except RuntimeError as error:
        cure = find_cure(error)
        if not cure:
            raise
        said = f"the manager cannot start a thread on this machine{cure}"
        log.error("%s", said)
        starter.answer({"error": said, "kind": "other"})
        return 1
    if program.resumed:
        log.info("resuming the experiment")
        os.execv(sys.executable, program.command())
    return 0


def _refusal(error: NniliteError | OSError) -> dict[str, str]:
    """Return the answer to the process that started this one. It may know the line of a field in the config's file."""
    if isinstance(error, ConfigError) and error.place.field and not error.place.file:
        return {"error": error.message, "kind": "other", "field": error.place.field}
    sentence = explain_os_error(error) if isinstance(error, OSError) else str(error)
    return {"error": sentence, "kind": "conflict" if isinstance(error, Conflict) else "other"}


def begin(words: list[str]) -> int:
    """Become the manager that a command line describes. Return the exit code."""
    if words[:1] == ["--stand-by"]:
        lookup.installed()  # to find them takes a while, too
        told = standing_by.await_told_words()
        if not told:
            return 0
        words = [*told, "--ready-fd", words[1]]
    options = parse(words)
    if options.log is not None:
        try:
            standing_by.write_to(options.log)
        except OSError as error:
            Starter(options.ready_fd).answer({"error": f"{options.log}: {error.strerror}", "kind": "other"})
            return 1
    configure_logging(options.debug)
    go_first()  # a detached process does not lead its session any more
    if options.detach:
        standing_by.hear_nothing()
        if os.fork():
            os._exit(0)
    # The event loop and the store's thread wait for each other all the time, by default up to 5 ms.
    sys.setswitchinterval(0.0005)
    return asyncio.run(main(options))


if __name__ == "__main__":
    run_program(lambda: begin(sys.argv[1:]))
