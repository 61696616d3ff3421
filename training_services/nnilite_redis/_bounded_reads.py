"""Read what others write into Redis, up to limits of size: anyone who has the pool's password may write anything.

The sizes are checked in Redis, by scripts, before anything is sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from nnilite.errors import ServiceError
from nnilite_redis import _scripts as scripts
from nnilite_redis._connection import REDIS_ERRORS, SENSELESS, RedisAddress

MOST_LIST_BYTES = 8_000_000
_MOST_VALUE_BYTES = 64_000  # limit for what workers report; they cut their texts to less
_MOST_MESSAGES = 64
_MOST_MESSAGE_BYTES = 24_000_000
_MOST_MAIL_BYTES = 48_000_000
_AT_ONCE = 100  # hashes: the event loop has a turn between two lots


class BoundedReads:
    """Calls one server. Every method raises ServiceError or ConfigError with a sentence."""

    def __init__(self, address: RedisAddress, client: Any) -> None:
        self._address = address
        self._client = client

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Turn errors of the client, and of reading its answers, into sentences. Raises: ServiceError, ConfigError."""
        try:
            yield
        except (*REDIS_ERRORS, *SENSELESS) as error:
            raise self._address.explained(error) from error

    async def run(self, script: str, keys: Sequence[str], *words: str | int | bytes) -> Any:
        """Run a script."""
        with self.asking():
            return await self._client.eval(script, len(keys), *keys, *words)

    async def hashes(self, keys: Sequence[str], fields: Sequence[str], kept_s: int = 0) -> list[list[Any]]:
        """Return for each hash whether it exists, followed by these fields. Values that are too long are left out.

        `kept_s`: how long the hashes stay by being read; 0: as they are.
        """
        found: list[list[Any]] = []
        for begin in range(0, len(keys), _AT_ONCE):
            some = keys[begin : begin + _AT_ONCE]
            answer = await self.run(scripts.HASHES, some, kept_s, _MOST_VALUE_BYTES, *fields)
            with self.asking():
                found += [_row(row, len(fields)) for _, row in zip(some, answer, strict=True)]
        return found

    async def list_all(self, command: str, key: str, most: int) -> list[Any]:
        """Return all entries of a set or a hash. Raises: ServiceError, also for more than `most` entries."""
        answer = await self.run(scripts.LIST, [key], command, most, _MOST_VALUE_BYTES, MOST_LIST_BYTES)
        with self.asking():
            return self.check_list(key, answer, most)

    def check_list(self, key: str, answer: Sequence[Any], most: int) -> list[Any]:
        """Check that a list is one that programs of nnilite have filled. Raises: ServiceError."""
        (entries, size), found = answer[:2], list(answer[2:])
        if entries > most or size > MOST_LIST_BYTES or len(found) > 2 * most:
            many = f"{entries:,} entries, and {most:,} are read at most"
            much = f"{size:,} bytes, which are too many"
            raise ServiceError(
                f"{key} in Redis at {self._address.title} has {many if entries > most else much}: another user of this "
                "Redis fills it. Delete the key; workers and managers enter themselves again"
            )
        return found

    async def take_messages(self, mail: str, last: bytes) -> tuple[int, list[tuple[bytes, dict[bytes, bytes]]]]:
        """Take the next messages out of a party's mail, and remove the one that was read last.

        Return how many were dropped unread because they were too long, and the others: entry and fields of each.
        """
        most = _MOST_MESSAGES, _MOST_MESSAGE_BYTES, _MOST_MAIL_BYTES
        found = await self.run(scripts.MESSAGES, [mail], *most, last)
        with self.asking():
            dropped, messages = found
            pairs = ((entry, zip(fields[::2], fields[1::2], strict=True)) for entry, fields in messages)
            return int(dropped), [(entry, dict(texts)) for entry, texts in pairs]

    async def last_ring(self, bell: str, entry: bytes) -> bytes:
        """Return the last entry of the bell, after this one was read."""
        found = await self.run(scripts.RUNG, [bell], entry)
        if not isinstance(found, bytes):
            raise self._address.explained(TypeError("the bell has an entry without a name"))
        return found


def _row(row: Sequence[Any], fields: int) -> list[Any]:
    """Check the answer on a hash: whether it exists, followed by its fields. Raises: TypeError."""
    exists, *values = row
    if len(values) != fields or not all(value is None or isinstance(value, bytes) for value in values):
        raise TypeError(f"a hash is {row!r:.100}")
    return [exists, *values]
