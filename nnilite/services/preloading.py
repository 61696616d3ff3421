"""Modules that a process of the machine imports once for all trials (`preload`), for services whose keepers can use it.

The keeper's fork server does it (see `nnilite._keeper.fork_server`). It gets an order, and refuses what no fork could
use as if it had imported it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from nnilite._keeper import build
from nnilite._keeper.python_command import describe_other_command, read_python_command
from nnilite.errors import ConfigError, Place, ServiceError
from nnilite.service import ServiceContext

__all__ = ["PRELOAD_S", "PreloadedModules", "check_modules", "make_order", "make_refusal", "try_to_preload"]

PreloadedModules = Annotated[
    list[str], "installed modules that are imported once, for all trials that `python script.py` or a function starts"
]
PRELOAD_S = 120.0
"""How long the import may take."""


def check_modules(modules: Sequence[str]) -> None:
    """Check the names. Raises: ConfigError."""
    for module in modules:
        if not all(part.isidentifier() and part.isascii() for part in module.split(".")):
            raise make_refusal(f"has {module!r}, which cannot be the name of a module; write it as in `import sklearn`")


def make_refusal(why: str) -> ConfigError:
    """Return the error for what cannot be preloaded."""
    return ConfigError(why, Place(field="preload"))


def make_order(modules: Sequence[str], context: ServiceContext) -> dict[str, Any]:
    """Return the order for the fork server of this machine, or, with another `code`, of a worker.

    Raises: ConfigError where trials would start without the preloader.
    """
    if context.defaults.get("distributed"):
        raise make_refusal("has no effect on distributed trials, whose processes start afresh; take out one of the two")
    code = os.path.abspath(context.code_directory)  # noqa: PTH100 - links must stay as they are
    command = context.defaults.get("trialCommand") or ""
    if read_python_command(command, {"PATH": os.defpath}) is None:
        raise make_refusal(f"has no effect, as {describe_other_command(command)}")
    return {"modules": list(modules), "command": command, "code": code}


def try_to_preload(order: dict[str, Any]) -> None:
    """Do what the order says, and end it again. Blocks.

    Raises: ConfigError, ServiceError if a module is not installed here.
    """
    with tempfile.TemporaryDirectory(prefix="nnilite-preload-") as folder:
        keeper = str(build(Path(folder) / "keeper.pyz", with_preload=True))
        command = [sys.executable, "-I", "-S", keeper, "serve"]
        with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-3, text=True, start_new_session=True) as server:
            limit = threading.Timer(PRELOAD_S, server.kill)
            limit.start()
            try:
                answer = _ask(server, order)
            finally:
                limit.cancel()
    if not answer:
        raise ServiceError(f"preload was not tried: its process has ended, at the latest after {PRELOAD_S:g} s")
    event = json.loads(answer)
    if event.get("missing"):  # a config is often checked where trials will not run
        raise ServiceError(f"preload: {event.get('message')}")
    if event.get("event") != "preloaded":
        raise make_refusal(str(event.get("message")))


def _ask(server: subprocess.Popen[str], order: dict[str, Any]) -> str:
    """Return the server's answer, a line; "" if it has ended."""
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        with server.stdin as orders:
            orders.write(json.dumps({"preload": order}) + "\n")
            orders.flush()
            return server.stdout.readline()
    except BrokenPipeError:
        return ""
