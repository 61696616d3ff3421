"""The process that serves one webhook: `python -m nnilite._webhooks DIRECTORY NUMBER maximize|minimize`.

It ends when its standard input does, after one more try for what is not sent yet.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

from nnilite._side_processes.quick_end import run_program
from nnilite._side_processes.side_process import is_alone, is_over, prepared
from nnilite._store.database_file import FILE_NAME
from nnilite._webhooks.sending import send
from nnilite._webhooks.undelivered import FOLDER
from nnilite._webhooks.webhook_events import Message, WebhookEventReader, read_position, write_position
from nnilite.config import WebhookConfig
from nnilite.platform_http import CallRefused, Contradiction, Problem, RequestTooLarge, Throttled

log = logging.getLogger("nnilite.webhook")

_PAUSE_S = (1.0, 300.0)


class WebhookSender:
    """Sends the news to one address. What fails is tried again, with growing pauses, and logged once."""

    def __init__(self, hook: WebhookConfig, news: WebhookEventReader, position: Path, title: str) -> None:
        self._hook, self._news, self._path, self._title = hook, news, position, title
        self._position = read_position(position)
        self._failing = False
        self._pause_s, self._longest_s = _PAUSE_S
        self._not_before = 0.0

    def step(self, last: bool = False) -> bool:
        """Send what is new, unless it is time for a pause. Return whether everything is sent."""
        if time.monotonic() < self._not_before and not last:
            return False
        reached = self._position
        for message, position in self._news.read_since(reached):
            if message is not None and message.kind in self._hook.events:
                if not self._send(message):
                    return False
                self._news.mark_sent(message)
                write_position(self._path, position)
            self._position = position
        if self._position != reached:
            write_position(self._path, self._position)
        return True

    def _send(self, message: Message) -> bool:
        """Return whether the message needs no further try."""
        try:
            send(self._hook, message)
        except (CallRefused, RequestTooLarge, Contradiction) as error:
            log.warning("%s does not accept %s, which is not sent again: %s", self._title, message.id, error)
        except Problem as error:
            if not self._failing:
                log.warning("%s fails, and is tried again until it works: %s", self._title, error)
            self._failing = True
            wait_s = error.retry_after_s if isinstance(error, Throttled) else 0.0
            self._not_before = time.monotonic() + min(max(self._pause_s, wait_s or 0.0), self._longest_s)
            self._pause_s = min(self._pause_s * 2, self._longest_s)
            return False
        if self._failing:
            log.info("%s works again", self._title)
        self._failing, self._pause_s, self._not_before = False, _PAUSE_S[0], 0.0
        return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m nnilite._webhooks")
    parser.add_argument("directory", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("better", choices=["maximize", "minimize"])
    options = parser.parse_args()
    config = prepared(options.directory)
    folder = options.directory / FOLDER
    folder.mkdir(exist_ok=True)
    if not is_alone(folder / f"{options.number}.lock"):
        return 0
    name, maximize = config.experiment_name or "", options.better == "maximize"
    news = WebhookEventReader(options.directory / FILE_NAME, options.directory.name, name, maximize)
    title = f"webhook {options.number + 1}"
    sender = WebhookSender(config.webhooks[options.number], news, folder / f"{options.number}.json", title)
    while not is_over():
        sender.step()
    if not sender.step(last=True):
        log.warning("%s has not received everything; a resume sends the rest", title)
    news.close()
    return 0


if __name__ == "__main__":
    run_program(main)
