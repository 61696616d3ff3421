"""Sends one message to one address, as Standard Webhooks (https://www.standardwebhooks.com) writes and signs them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from dataclasses import replace
from datetime import datetime, timezone
from urllib.parse import urlsplit

from nnilite._webhooks.webhook_events import Message
from nnilite.config import WebhookConfig
from nnilite.platform_http import HttpConfig, HttpRequest, PlatformHttp, hide
from nnilite.records import Json
from nnilite.records.strict_json import spell_json

TIMEOUT_S = 10
_ANSWER_MAX_BYTES = 1_000_000


def send(hook: WebhookConfig, message: Message) -> None:
    """Try once, for at most 10 seconds. Raises: Problem, see `nnilite.platform_http`."""
    asyncio.run(_send(hook, message))


async def _send(hook: WebhookConfig, message: Message) -> None:
    parts = urlsplit(hook.url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    for secret in (hook.url, path, hook.secret or ""):
        hide(secret)
    http = PlatformHttp("the webhook", f"{parts.scheme}://{parts.netloc}", HttpConfig(request_timeout=TIMEOUT_S))
    now = time.time()
    body = spell_json(payload(message, now)).encode("ascii")
    headers = {"Content-Type": "application/json", **signed(hook.secret, message.id, now, body)}
    request = HttpRequest("POST", path, body=body, headers=headers, patience_s=0, max_bytes=_ANSWER_MAX_BYTES)
    try:
        # An address that accepts a message must not get it again, even if the rest of its answer never ends.
        await http.call(replace(request, status_suffices=True))
    finally:
        await http.close()


def payload(message: Message, now: float) -> dict[str, Json]:
    """Return the JSON that is sent. `text` is a sentence for people, where chat programs look for one."""
    at = datetime.fromtimestamp(now, timezone.utc).isoformat()
    return {"type": message.kind, "timestamp": at, "text": message.text, "data": message.data}


def signed(secret: str | None, message: str, now: float, body: bytes) -> dict[str, str]:
    """Return the headers that name and sign a message."""
    stamp = str(int(now))
    headers = {"webhook-id": message, "webhook-timestamp": stamp}
    if secret:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        digest = hmac.new(key, f"{message}.{stamp}.".encode() + body, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode('ascii')}"
    return headers
