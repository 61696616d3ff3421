"""An open service: its connections, its messages, and the files that it has put where workers find them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nnilite.codedir import CodePackage
from nnilite.errors import NniliteError, ServiceError
from nnilite.service import Job, ServiceContext
from nnilite.services.task_ends import end_tasks
from nnilite_redis import _relay
from nnilite_redis._api import Pool
from nnilite_redis._config import RedisConfig
from nnilite_redis._convert import describe_files, find_requirements, task_of
from nnilite_redis._file_store import Files, files_of, name_of
from nnilite_redis._keys import name_manager_party
from nnilite_redis._mailbox import Mailbox, PoolMessage
from nnilite_redis._trial_files import TrialFiles
from nnilite_redis._watch import PoolWatch

log = logging.getLogger(__name__)

_RELAYED_AT_ONCE = 32


class Session:
    """From `begin` to `end`."""

    def __init__(
        self, config: RedisConfig, context: ServiceContext, pool: Pool, files: Files, package: CodePackage, keeper: str
    ) -> None:
        self.pool = pool
        self._config = config
        self._context = context
        self._files = files
        self._package = package
        self._keeper = keeper  # its name among the files
        self._relays = ThreadPoolExecutor(_RELAYED_AT_ONCE, thread_name_prefix="relay")
        party = name_manager_party(context.experiment)
        self.mail = Mailbox(pool, party, self._serve, presence=pool.keys.manager(context.experiment))
        self.watch = PoolWatch(pool, config, context.experiment, self.queue)
        self.trial_files = TrialFiles(pool, self.mail, files, self.watch, config.storage is not None)
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def begin(cls, config: RedisConfig, context: ServiceContext) -> Session:
        """Connect, check access, and store code and keeper. Raises: ConfigError, ServiceError, CodeDirError."""
        async with contextlib.AsyncExitStack() as unless_done:
            pool = Pool(config.address, config.prefix)
            unless_done.push_async_callback(pool.close)
            files = await reach_files(pool, config)
            package = await asyncio.to_thread(context.package)
            keeper = await asyncio.to_thread(name_of, context.keeper, "keeper")
            session = cls(config, context, pool, files, package, keeper)
            await session._start()
            unless_done.pop_all()
        return session

    async def _start(self) -> None:
        # Where the shared storage has the code, Redis need not hold it. Who cannot take it from there asks for it.
        package = self._package.archive.name.partition(".")[0]
        await self._provide(code=self._context.stored_code(package) is None)
        await self.pool.set_experiment(self._context.experiment, closed=False)
        await self.watch.look_around()
        await self.mail.clear()
        self._reading = asyncio.get_running_loop().create_task(self.mail.run(), name=f"mail of {self.mail.party}")

    async def _provide(self, code: bool = True) -> None:
        """Ensure that workers find the keeper, and the code. Raises: ConfigError, ServiceError."""
        await self._upload(self._keeper, self._context.keeper, "the trial keeper")
        if code:
            archive = self._package.archive
            if not archive.exists():
                archive = (await asyncio.to_thread(self._context.package)).archive
            await self._upload(self._package.archive.name, archive, "the code package")

    async def _upload(self, name: str, path: Path, what: str) -> None:
        if not await self._files.has(name):
            await self._files.put(name, path, what)

    async def queue(self, job: Job) -> None:
        """Put a job into its queue, unless it is known. Raises: ServiceError."""
        required = find_requirements(job, self._config)
        task = task_of(job, self._config, self._package.archive.name, self._keeper)
        await self.pool.submit(job.name, job.experiment, task, required.queue, required.text)

    async def _serve(self, message: PoolMessage) -> PoolMessage | None:
        """Answer the requests of workers."""
        what = message.text("do")
        if what == "http":
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._relays, _relay.put, self._context.callback_url, message)
        if what == "provide":
            await self._provide()
            return PoolMessage({})
        if what == "changed":
            self._context.wake()
            return None
        raise ServiceError(f"the manager cannot {what!r:.50}: the worker may be of another version of nnilite")

    async def end(self) -> None:
        """End the session; jobs continue.

        Workers may tidy up an experiment without jobs; its keys in Redis expire, too.
        """
        await end_tasks([self._reading] if self._reading is not None else [])
        await self.mail.close()
        self._relays.shutdown(wait=False)
        try:
            await self.pool.set_experiment(self._context.experiment, closed=True)
            await self.pool.forget_experiment(self._context.experiment)
        except NniliteError as error:
            log.warning("the experiment's data in Redis expires in a week: %s", error)
        finally:
            await self.pool.close()


async def reach_files(pool: Pool, config: RedisConfig) -> Files:
    """Return the place for files, after it and Redis have answered. Raises: ConfigError, ServiceError."""
    await pool.check()
    files = files_of(pool, describe_files(config))
    await files.check()
    return files
