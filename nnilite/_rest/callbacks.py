"""What workers ask: take these events, give me the code package, give me the keeper."""

from __future__ import annotations

from nnilite._rest import wire
from nnilite._rest.events import parse_batch
from nnilite._rest.files import send_file
from nnilite._rest.handler import ApiHandler


class CallbackHandler(ApiHandler):
    """Takes one batch of events. The answer is sent after the manager has committed them."""

    async def post(self, job: str) -> None:
        events = parse_batch(self.body())
        answer = await self.backend.events(job, events)
        self.send_json(wire.callback_answer(answer))


class CodeHandler(ApiHandler):
    """Sends a code package."""

    async def get(self, digest: str) -> None:
        await send_file(self, self.backend.code_package(digest), "application/gzip")


class KeeperHandler(ApiHandler):
    """Sends the keeper."""

    async def get(self) -> None:
        await send_file(self, self.backend.keeper(), "application/zip")
