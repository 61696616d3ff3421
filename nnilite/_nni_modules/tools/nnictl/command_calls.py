"""Carries out commands of nnictl for functions that NNI's scripts call."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

from nnilite._cli import nnictl

__path__: list[str] = []  # see `nni._Elsewhere`


def carry_out(*words: object) -> None:
    """Carry out a command. Raises: SystemExit with its exit code if it fails, after it has printed why."""
    hook = sys.excepthook
    try:
        code = nnictl.run([str(word) for word in words if word is not None])
    finally:
        sys.excepthook = hook  # the errors of the calling script are its own, and no bugs of nnilite
    if code:
        raise SystemExit(code)


def answer_of(*words: object) -> Any:
    """Carry out a command with `--json`, and return what it would print. Raises: SystemExit."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        carry_out(*words, "--json")
    return json.loads(printed.getvalue())


def option(args: Any, name: str, flag: str) -> list[object]:
    """Return an option as words; none if `args` does not have it."""
    value = getattr(args, name, None)
    return [] if value in (None, False) else [flag] if value is True else [flag, value]
