"""The surroundings of a training service under test: a manager's side of everything, without a manager.

The service runs on an event loop in a thread of its own, as it would in a manager; tests are plain functions that call
it through `ServiceBench.call`. All paths are hostile: spaces, quotes, a dollar sign and a line end.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import functools
import json
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from nnilite._keeper import build
from nnilite.codedir import CodePackage, pack
from nnilite.errors import NniliteError
from nnilite.records import Json
from nnilite.service import Handle, Job, JobSpec, JobState, JobStatus, ServiceContext, TrainingService
from nnilite.testing.meeting import Meeting
from nnilite.testing.receiver import Received, Receiver

T = TypeVar("T")

HOSTILE = 'it\'s a "test" of $HOME `x`\n& more'
LIMIT_S = 60.0
_TURN_S = 0.02, 0.1
"""The shortest and the longest pause between two questions."""
_PART = 0.25
"""Between them, this share of the time waited so far: each question to a service costs it milliseconds of processor."""


def eventually(ask: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """Ask until the answer is true, and return it. Raises: TimeoutError after `limit_s` seconds.

    >>> eventually(lambda: (folder / "done").exists())  # doctest: +SKIP
    """
    shortest, longest = _TURN_S
    began = time.monotonic()
    while True:
        answer = ask()
        if answer:
            return answer
        waited = time.monotonic() - began
        if waited > limit_s:
            raise TimeoutError(f"this did not come true within {limit_s:g} s; the last answer was {answer!r}")
        time.sleep(min(longest, max(shortest, waited * _PART)))


@functools.lru_cache
def keeper_zipapp(*, with_nodes: bool = False, with_storage: bool = False) -> Path:
    """Build the keeper once for this process, in a folder that is removed with it.

    `with_nodes`: with what only distributed trials need, as it travels in their experiments. `with_storage`: with what
    copies files to a shared storage.
    """
    folder = Path(tempfile.mkdtemp(prefix="nnilite-keeper-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build(folder / "keeper.pyz", with_storage=with_storage, with_nodes=with_nodes, with_preload=True)


class ServiceBench(Meeting):
    """One experiment's surroundings in `folder`, and a service in them. Use as a context manager.

    `with_nodes`: its trials may be distributed.
    """

    def __init__(
        self, folder: Path, make: Callable[[ServiceContext], TrainingService], *, with_nodes: bool = False
    ) -> None:
        self.folder = folder / HOSTILE
        self.scratch = self.folder / "scratch"  # for files with which a trial shows what it does
        self.code = self.folder / "my code"
        self.receiver = Receiver()
        self.handles: dict[str, Handle] = {}
        self.wakes = 0
        self.limit_s = LIMIT_S  # for what should be soon
        self._make = make
        self._with_nodes = with_nodes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="service", daemon=True)
        self._service: TrainingService | None = None
        self._experiment = "x" + secrets.token_hex(4)
        for path in (self.scratch, self.code, self.folder / "experiment"):
            path.mkdir(parents=True)

    @property
    def service(self) -> TrainingService:
        """The service that is open."""
        if self._service is None:
            raise RuntimeError("no service is open")
        return self._service

    def __enter__(self) -> ServiceBench:
        self.receiver.start()
        self._thread.start()
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        """End all jobs, whatever the test has left."""
        try:
            if self._service is None:
                self.open()
            for handle in self.handles.values():
                self.call(self.service.cancel(handle))
            for received in self.receiver.jobs.values():
                received.cancel = True
            self.eventually(lambda: all(self.status(name).state.ended for name in self.handles))
            for handle in self.handles.values():
                self.remove(handle)
        finally:
            self.close()
            self.call(_turns())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()
            self.receiver.stop()

    def call(self, what: Coroutine[Any, Any, T], limit_s: float = LIMIT_S) -> T:
        """Return the result of a service's method, run on the service's loop.

        Raises: TimeoutError after `limit_s` seconds.
        """
        answer = asyncio.run_coroutine_threadsafe(what, self._loop)
        if not concurrent.futures.wait([answer], limit_s).done:
            answer.cancel()
            raise TimeoutError(f"this did not come true within {limit_s:g} s: {what}")
        return answer.result()

    def context(self) -> ServiceContext:
        """Return what the manager would give to the service."""
        return ServiceContext(
            experiment=self._experiment,
            directory=self.folder / "experiment",
            code_directory=self.code,
            package=self.package,
            keeper=keeper_zipapp(with_nodes=self._with_nodes),
            callback_url=lambda: self.receiver.url,
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def package(self) -> CodePackage:
        """Pack the code directory, and offer it for download."""
        package = pack(self.code, self.folder / "experiment" / "code")
        self.receiver.packages[package.hash] = package.archive
        return package

    def open(self) -> None:
        """Open a service: a new one, that knows nothing of an earlier one's jobs but their handles."""
        self._service = self._make(self.context())
        self.call(self._service.open())

    def close(self) -> None:
        """Let the service go. Jobs continue."""
        if self._service is not None:
            service, self._service = self._service, None
            self.call(service.close())

    def restart(self) -> None:
        """Act like a manager that is stopped and resumed. Handles go through JSON, as through its store."""
        self.close()
        self.handles = json.loads(json.dumps(self.handles))
        self.open()

    def put_code(self, **files: str) -> None:
        """Write files, named by path, to the code directory, and open a new service: the code is taken then."""
        self.close()
        for path, text in files.items():
            place = self.code / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            place.chmod(0o755 if text.startswith("#!") else 0o644)
        self.open()

    # jobs

    def job(self, command: str, trial: str = "", parameters: Json = None, gpus: int | None = None, **spec: Json) -> Job:
        """Make a job as the manager does; `spec` replaces parts of its specification."""
        sequence = len(self.receiver.jobs)
        trial = trial or f"T{sequence}x{secrets.token_hex(2)}"
        name = f"nni-{self._experiment}-{trial}-0"
        token = spec.pop("token", None) or secrets.token_hex(16)
        self.receiver.expect(name, token)
        record = {
            "parameter_id": sequence,
            "parameter_source": "algorithm",
            "parameters": {} if parameters is None else parameters,
            "parameter_index": 0,
        }
        whole = JobSpec(
            job=name,
            experiment=self._experiment,
            trial=trial,
            sequence=sequence,
            platform="test",
            token=token,
            callback=self.receiver.url,
            parameters=record,
            command=command,
            grace_s=5,
            max_output_bytes=10_000_000,
            heartbeat_s=0.5,
            linger_s=60,
        ).json()
        whole.update(spec)
        return Job(name, self._experiment, trial, 0, sequence, whole, gpus)

    def submit(self, job: Job) -> str:
        """Hand a job to the service. Return its name."""
        handle = self.call(self.service.submit(job))
        self.handles[job.name] = json.loads(json.dumps(handle))
        return job.name

    def run(self, command: str, **more: Any) -> str:
        """Submit a job with this shell command. Return its name. `more`: see `job`."""
        return self.submit(self.job(command, **more))

    def python(self, program: str, **more: Any) -> str:
        """Submit a job that runs this Python program, by `python -c`. Return its name."""
        return self.run(self.interpreter(program), **more)

    def received(self, name: str) -> Received:
        """Return what has come of a job."""
        return self.receiver.jobs[name]

    def status(self, name: str) -> JobStatus:
        """Return what the service says of a job now."""
        return self.call(self.service.poll([self.handles[name]]))[0]

    def wait(self, name: str, state: JobState | None = None, limit_s: float = 0.0) -> JobStatus:
        """Wait until the job is in a state (in any final one, if none is given). Return its status then."""
        limit_s = limit_s or self.limit_s
        last: list[JobStatus] = []

        def arrived() -> bool:
            last[:] = [self.status(name)]
            return last[0].state is state if state else last[0].state.ended

        try:
            eventually(arrived, limit_s)
        except TimeoutError as error:
            raise TimeoutError(f"{name} is {last[0]} after {limit_s:g} s, not {state or 'ended'}") from error
        return last[0]

    def finish(self, name: str) -> Received:
        """Wait until the job has ended and the receiver has its exit. Return what came of it."""
        self.wait(name)
        self.eventually(lambda: self.received(name).exits)
        return self.received(name)

    def eventually(self, ask: Callable[[], T]) -> T:
        """Ask until the answer is true, and return it. Raises: TimeoutError after `limit_s` seconds."""
        return eventually(ask, self.limit_s)

    def remove(self, handle: Handle) -> None:
        """Have a job removed, as the engine does: again, until the service has done it."""
        self.eventually(lambda: self.refusal(self.service.remove(handle)) is None)

    def refusal(self, what: Coroutine[Any, Any, object]) -> NniliteError | None:
        """Return the error that a call of the service raises, None if it does not."""
        try:
            self.call(what)
        except NniliteError as error:
            return error
        return None


async def _turns() -> None:
    """Wait some turns of the loop, after which a connection that was closed a moment ago is gone."""
    for _ in range(10):
        await asyncio.sleep(0)
