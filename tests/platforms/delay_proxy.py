"""A TCP proxy that holds every byte back for a while: `delay_proxy.py ADDRESS PORT DELAY_S`, and it prints its port.

Bytes keep their order and their distance in time; what is on its way is bounded, as on a real line.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

_ON_THE_WAY_BYTES = 32 << 20
_PIECE_BYTES = 1 << 16


class Line:
    """One direction of a connection."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_ON_THE_WAY_BYTES // _PIECE_BYTES)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taking = asyncio.create_task(self._take(reader))
        try:
            await self._give(writer)
        finally:
            taking.cancel()

    async def _take(self, reader: asyncio.StreamReader) -> None:
        now = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            while data := await reader.read(_PIECE_BYTES):
                await self._pieces.put((now() + self._delay_s, data))
        await self._pieces.put((now() + self._delay_s, b""))

    async def _give(self, writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            while True:
                due, data = await self._pieces.get()
                # This is a program of its own, which does not see the modules of the tests.
                await asyncio.sleep(max(0.0, due - now()))  # noqa: TID251
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        writer.close()


async def serve(address: str, port: int, delay_s: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(address, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            Line(delay_s).carry(reader, far_writer), Line(delay_s).carry(far_reader, writer), return_exceptions=True
        )

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - how a test learns of it
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
