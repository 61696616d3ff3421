"""Handlers for workers: they prove the manager, take events, and send the code package and the keeper."""

from __future__ import annotations

from nnilite._rest.events import parse_batch
from nnilite._rest.files import send_file
from nnilite._rest.handler import ApiHandler
from nnilite._rest.refusal import HttpRefusal
from nnilite.records.shapes import to_json


class ProofHandler(ApiHandler):
    """Proves to a keeper that this is the manager of its trial. Others learn nothing from the answer."""

    def get(self, job: str) -> None:
        self.send_json(self.context.gate.proofs.meet(self.backend.callbacks.callback_token(job), self.query["nonce"]))


class CallbackHandler(ApiHandler):
    """Takes one batch of events. The answer is sent after the manager has committed them."""

    async def post(self, job: str) -> None:
        if self.signed is not None and not self.context.gate.proofs.accept(job, self.signed, self.body()):
            raise HttpRefusal(401, "this batch is not as it was signed, or it was sent before")
        events = parse_batch(self.body())
        answer = await self.backend.callbacks.events(job, events)
        self.send_json(to_json(answer))


class CodeHandler(ApiHandler):
    """Sends a code package."""

    async def get(self, digest: str) -> None:
        await send_file(self, self.backend.files.code_package(digest), "application/gzip")


class KeeperHandler(ApiHandler):
    """Sends the keeper."""

    async def get(self) -> None:
        await send_file(self, self.backend.files.keeper(), "application/zip")
