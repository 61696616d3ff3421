"""A disk that does not say whether a file is there, as one that fails, or a network drive that is away."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def failing_at(path: Path | str, call: Callable[..., Any] = os.stat) -> Callable[..., Any]:
    """The same call of the system, but that it fails for one path, which need not be there."""

    def failing(place: Any, *args: Any, **named: Any) -> Any:
        if place in (path, str(path)):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return call(place, *args, **named)

    return failing
