"""Keeps secrets out of the logs: tokens in addresses and headers, cookies, and values known to be secret."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from nnilite._logging.redaction import redact
from nnilite._logging.sparse_log import SparseLog

_FORMATTER = logging.Formatter()


class SecretFilter(logging.Filter):
    """A logging filter that rewrites each record, for handlers or loggers.

    Example: `handler.addFilter(SecretFilter([manager_token]))`
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets = [secret for secret in secrets if secret]

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = self.redact(record.getMessage())
        record.args = ()
        if record.exc_info and not record.exc_text:
            record.exc_text = self.redact(_FORMATTER.formatException(record.exc_info))
        return True

    def redact(self, text: str) -> str:
        return redact(text, self._secrets)


class SparseFilter(logging.Filter):
    """Lets each line of a logger's code through once a minute, for loggers that log what strangers send."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = SparseLog()

    def filter(self, record: logging.LogRecord) -> bool:
        more = self._lines.more(f"{record.pathname}:{record.lineno}")
        if more:
            record.msg, record.args = record.getMessage() + more, ()
        return more is not None


SERVER_LOGGERS = ("tornado.access", "tornado.application", "tornado.general")


def guard_server_logs(secrets: Iterable[str] = ()) -> None:
    """Put filters on tornado's own loggers, in place of earlier ones."""
    guard = SecretFilter(secrets)
    for name in SERVER_LOGGERS:
        logger = logging.getLogger(name)
        for old in [item for item in logger.filters if isinstance(item, SecretFilter | SparseFilter)]:
            logger.removeFilter(old)
        logger.addFilter(guard)
    logging.getLogger("tornado.general").addFilter(SparseFilter())
