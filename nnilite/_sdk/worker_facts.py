"""Says what trials run with on a host: the versions of Python and its packages, and how long the start took.

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
NAME = "nnilite.worker"  # of the attribute that carries it
_KINDS = (".dist-info", ".egg-info")


def tell(send: Callable[[str, int, str, str], None], asked: bool) -> None:
    """Send it as an attribute. Raises: OSError.

    `asked`: whether the trial has just asked for its parameters, which ends its start.
    """
    host = os.uname()
    facts = {
        "host": host.nodename,
        "system": " ".join([host.sysname, host.release, host.machine]),
        "executable": sys.executable,
        "python": sys.version.split()[0],
        "packages": list_packages(),
        "startS": _age_s() if asked else None,
    }
    send("ATTRIBUTE", 0, dumps(facts, str), NAME)


def list_packages() -> dict[str, str]:
    """Return the versions of installed packages by their names, as the names of their folders tell them."""
    found: dict[str, str] = {}
    for place in sys.path:
        for name in os.listdir(place) if os.path.isdir(place) else ():
            if name.endswith(_KINDS):
                package, version = (name.rpartition(".")[0] + "-").split("-")[:2]
                found.setdefault(package.replace("_", "-").lower(), version)
    return found


def _age_s() -> float | None:
    """Return for how many seconds this process has run; None where Linux does not say it."""
    try:
        with open("/proc/self/stat") as file:
            began = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return round(time.clock_gettime(time.CLOCK_BOOTTIME) - began, 3)
    except (OSError, AttributeError):
        return None
