"""A TCP proxy on this machine that can be cut: connections stay open, and nothing comes through any more."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Cable:
    """Leads to a port of this machine."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._answers = asyncio.Event()
        self._question = b""
        self._writers: list[asyncio.StreamWriter] = []
        self._ended = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="cable", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(60)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._open.clear)

    def mend(self) -> None:
        self._question = b""
        for way in (self._open, self._answers):
            self._loop.call_soon_threadsafe(way.set)

    def hold_answers_to(self, question: bytes) -> None:
        """What has this in it still arrives, and nothing comes back from then on, until `mend`."""
        self._question = question

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _serve(self) -> None:
        self._open.set()
        self._answers.set()
        self._server = await asyncio.start_server(self._ensure_connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        self._ended = True
        for way in (self._open, self._answers):
            way.set()
        # Nobody closes a connection whose opening is canceled, or that was accepted just before the server closes. So
        # no more are accepted, and all tasks come to their end.
        self._loop.remove_reader(self._server.sockets[0])
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            self._break_all()
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        self._server.close()
        self._break_all()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    def _break_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()  # what is still to be written has nobody to read it

    async def _ensure_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is being started again
            writer.close()
            return
        self._writers.append(far_writer)
        if self._ended:
            self._break_all()
        await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer, self._answers))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *more: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self._question and self._question in data:
                    self._answers.clear()
                for way in (self._open, *more):
                    await way.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
