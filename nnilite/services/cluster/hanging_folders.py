"""Folders of attempts that hang, so that one of them does not delay a look at the others.

Usually, one command looks at all files. If it does not come to its end, each folder is tried alone, and those that do
not answer are set aside: they are left out of the looks, and tried again from time to time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from nnilite.errors import ServiceError
from nnilite.services.cluster import shell_scripts as shell
from nnilite.services.cluster.login import LoginHost, ShellAnswer

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHORT_S = "5"
_LONG_S = "20"  # less than a command may take at all
_AGAIN_S = 30.0
_KILLED = (124, 137)  # the exit status of `timeout`, and of what it kills


class HangingFolders:
    """Of one machine. Names of files and folders are relative to the folder of all files."""

    def __init__(self, host: LoginHost, root: Callable[[], str]) -> None:
        self._host = host
        self._root = root
        self._aside: dict[str, float] = {}  # folders that hang, and when they are tried again

    def aside(self) -> frozenset[str]:
        """Return the folders that are set aside now."""
        return frozenset(self._aside)

    def check(self, name: str) -> None:
        """Check that the file is not in a folder that is set aside. Raises: ServiceError."""
        folder = attempt_folder(name)
        if folder in self._aside:
            raise ServiceError(describe_hanging(folder, self._host.title))

    async def look(self, names: Iterable[str], work: Callable[[Sequence[str], str], Awaitable[T | None]]) -> T:
        """Do work with the files whose folders answer: it gets them and a limit in seconds, and returns None after it.

        Raises: ServiceError.
        """
        wanted = list(names)
        await self._try_again()
        found = await work(self._keep_answering(wanted), _SHORT_S)
        if found is None:
            await self._set_aside(map(attempt_folder, self._keep_answering(wanted)))
            found = await work(self._keep_answering(wanted), _LONG_S)
        if found is None:
            raise ServiceError(f"{self._host.title}: the folders of trials do not answer within {_LONG_S} s")
        return found

    def _keep_answering(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if attempt_folder(name) not in self._aside]

    async def _try_again(self) -> None:
        now = time.monotonic()
        due = [folder for folder, again in self._aside.items() if again <= now]
        if due:
            for folder in due:
                del self._aside[folder]
            await self._set_aside(due)

    async def _set_aside(self, folders: Iterable[str]) -> None:
        """Set aside those of the folders that hang. Raises: ServiceError."""
        tried = list(dict.fromkeys(folders))
        given = b"".join(folder.encode() + b"\0" for folder in tried)
        answer = await self._host.run(shell.TRY_FOLDERS, self._root(), given=given)
        answered = set(answer.output.decode("utf-8", "surrogateescape").split("\0"))
        for folder in tried:
            if folder not in answered:
                log.info("the folder %s on %s does not answer; skipping it until it does", folder, self._host.title)
                self._aside[folder] = time.monotonic() + _AGAIN_S


def attempt_folder(name: str) -> str:
    """Return the attempt's folder that a file is in."""
    return name.partition("/.nni/")[0] if "/.nni/" in name else name.rpartition("/")[0]


def describe_hanging(folder: str, title: str) -> str:
    """Return the sentence on a folder that is set aside."""
    return f"the trial's folder {folder} on {title} does not answer now"


def was_killed(answer: ShellAnswer) -> bool:
    """Return whether a command has come to its limit."""
    return answer.status in _KILLED
