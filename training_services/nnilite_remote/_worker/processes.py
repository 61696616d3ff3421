"""Processes of this machine, and files for their owner alone."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from typing import Any


class Refusal(Exception):
    """What was asked cannot be done; one sentence."""


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def started_at(pid: int) -> str:
    """When the process started, as the keeper tells it; "" if it does not run."""
    if os.path.exists("/proc/self/stat"):
        try:
            with open("/proc/%d/stat" % pid, "rb") as file:
                fields = file.read().rpartition(b")")[2].decode("ascii", "replace").split()
        except OSError:
            return ""
        return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""
    asked = ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)]
    found = subprocess.run(asked, stdout=subprocess.PIPE, check=False, timeout=10)
    state, _, when = found.stdout.decode("ascii", "replace").strip().partition(" ")
    return "" if state.startswith("Z") else when.strip()


def experiment_of(pid: int) -> str:
    """The experiment whose trial a process belongs to; "" if that cannot be told."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            for item in file.read().split(b"\0"):
                if item.startswith(b"NNI_EXP_ID="):
                    return item.partition(b"=")[2].decode("utf-8", "replace")
    except OSError:
        return ""
    return ""


def send_signal(pid: int, number: int, group: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, number)


def read_json(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_private(path: str, text: str) -> None:
    """Whole or not at all, and for the owner's eyes only."""
    draft = "%s.%d.new" % (path, os.getpid())
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def make_folder(path: str) -> None:
    os.makedirs(path, mode=0o700, exist_ok=True)
