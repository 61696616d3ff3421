"""Says what trials run with on a host: the versions of Python and its packages, GPUs, and how long the start took.

The manager asks by a variable with the keys of the hosts that it knows: each host and Python says it once. With every
other trial the SDK only looks for its key, without this module.
"""

from __future__ import annotations

import os
import sys
import time

from nnilite._cpython import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ASKED = "NNILITE_WORKERS_KNOWN"
NAME = "nnilite.worker"  # name of the attribute that carries these facts


def tell(send: Callable[[str, int, str, str], None], asked: bool) -> None:
    """Send the facts about this worker as an attribute. Raises: OSError.

    `asked`: whether the trial has just asked for its parameters, which ends its start.
    """
    host = os.uname()
    facts = {
        "host": host.nodename,
        "system": " ".join(host[::2]),  # its name, release and machine
        "executable": sys.executable,
        "python": sys.version.split()[0],
        "packages": list_packages(),
        "gpus": name_gpus(),
        "startS": _age_s() if asked else None,
    }
    send("ATTRIBUTE", 0, dumps(facts, str), NAME)


def list_packages() -> dict[str, str]:
    """Return the versions of installed packages by their names, as the names of their folders tell them."""
    found: dict[str, str] = {}
    for place in sys.path:
        for name in os.listdir(place) if os.path.isdir(place) else ():
            if name.endswith((".dist-info", ".egg-info")):
                package, version = (name.rpartition(".")[0] + "-").split("-")[:2]
                found.setdefault(package.replace("_", "-").lower(), version)
    return found


def name_gpus(folder: str = "/proc/driver/nvidia") -> list[str]:
    """Return the files in which NVIDIA's driver names itself and then each GPU; none without it."""
    models = []
    for place, _, names in sorted(os.walk(folder)):
        for name in names:
            if name in ("version", "information"):
                try:
                    models.append(_read(place + "/" + name))
                except OSError:  # a GPU that has failed
                    models.append("")
    return models


def _read(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()


def _age_s() -> float | None:
    """Return for how many seconds this process has run; None where Linux does not say it."""
    try:
        began = int(_read("/proc/self/stat").rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except OSError:
        return None
